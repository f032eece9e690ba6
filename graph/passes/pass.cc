// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/pass.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "graph/onnx/verify.h"
#include "graph/print.h"

namespace onnx_fp8 {
namespace {

#ifdef NDEBUG
constexpr bool kVerifyEach = false;
#else
constexpr bool kVerifyEach = true;
#endif

// "03_FuseNorms": files list in the order in which they were written.
std::string Numbered(int number, const std::string& name) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%02d_", number);
  return digits + name;
}

}  // namespace

PassRunner::PassRunner(PassOptions options) : options_(std::move(options)) {}

void PassRunner::Begin(const std::string& name, Verifying verifying) {
  pipeline_ = Numbered(++pipelines_, name);
  verifying_ = verifying;
  passes_ = 0;
}

void PassRunner::Run(const Passes& passes, Graph& graph) {
  for (const Pass& pass : passes) {
    bool skipped =
        pass.may_skip && std::ranges::count(options_.skip, pass.name);
    if (skipped) continue;
    auto begin = Clock::now();
    pass.run(graph);
    Keep(pass.name, begin, graph);
    bool each = kVerifyEach || !options_.dump.empty();
    bool wanted = each || &pass == &passes.back();
    if (wanted && verifying_ == Verifying::kYes) Verify(graph, pass.name);
  }
}

void PassRunner::Keep(const std::string& name, Clock::time_point begin,
                      const Graph& graph) {
  double time = std::chrono::duration<double>(Clock::now() - begin).count();
  auto known = std::ranges::find(seconds_, name, &PassSeconds::name);
  if (known == seconds_.end()) {
    seconds_.push_back({name, time});
  } else {
    known->seconds += time;
  }
  if (!options_.dump.empty()) Write(name, graph);
}

void PassRunner::Write(const std::string& name, const Graph& graph) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(options_.dump) / pipeline_;
  std::error_code error;
  fs::create_directories(folder, error);
  Check(!error, "[", folder.string(), "] can't be created: ", error.message());
  fs::path file = folder / (Numbered(passes_++, name) + ".txt");
  WriteFileAtomically(file.string(), Print(graph));
}

}  // namespace onnx_fp8
