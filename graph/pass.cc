// SPDX-License-Identifier: Apache-2.0
#include "graph/pass.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "graph/print.h"
#include "graph/verify.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

void Dump(const Graph& graph, const std::string& folder, size_t number,
          const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::string prefix = number < 10 ? "0" : "";
  std::filesystem::path path =
      std::filesystem::path(folder) /
      (prefix + std::to_string(number) + "_" + name + ".txt");
  std::ofstream file(path, std::ios::binary);
  file << Print(graph);
  file.close();
  Check(!file.fail(), "[", path.string(), "] can't be written");
}

}  // namespace

std::vector<PassTiming> RunPasses(Graph& graph, std::span<const Pass> passes,
                                  const PassOptions& options) {
  for (const std::string& name : options.skip) {
    bool known = std::ranges::any_of(
        passes, [&](const Pass& pass) { return pass.name == name; });
    Check(known, "expected the name of a pass to skip, got ", name);
  }
  bool dump = !options.dump_folder.empty();
  if (dump) Dump(graph, options.dump_folder, 0, "input");
  std::vector<PassTiming> timings;
  size_t number = 0;
  for (const Pass& pass : passes) {
    ++number;
    if (options.skip.contains(pass.name)) continue;
    auto start = std::chrono::steady_clock::now();
    try {
      pass.run(graph);
    } catch (const Error& error) {
      Fail(error.what(), " (in pass ", pass.name, ")");
    }
    std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    timings.push_back({pass.name, time.count(), graph.nodes().size()});
    // Before Verify: the dump of a broken graph shows what is wrong.
    if (dump) Dump(graph, options.dump_folder, number, pass.name);
    Verify(graph, Concat("pass ", pass.name), {options.foreign_ops});
  }
  return timings;
}

}  // namespace onnx_fp8
