// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <streambuf>

#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/run_session.h"
#include "cli/shapes.h"
#include "tests/fuzz/fuzz_target.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

// Catches the output of the commands while it lives.
class Silence : std::streambuf {
 public:
  Silence() : out_(std::cout.rdbuf(this)), err_(std::cerr.rdbuf(this)) {}
  ~Silence() override {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(err_);
  }

 private:
  int overflow(int c) override { return c; }
  std::streamsize xsputn(const char*, std::streamsize n) override { return n; }

  std::streambuf* out_;
  std::streambuf* err_;
};

using Words = std::vector<std::string>;

Words Split(std::string_view text) {
  Words words;
  for (size_t at = 0; at <= text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// The flags of a run are saved to config.json and must come back unchanged.
void ParseTwice(const Words& words) {
  Flags flags(TrainHelp()), again(TrainHelp());
  if (!flags.Parse({words})) return;
  CheckRanks(flags);
  ScheduleOf(flags);
  const SessionOptions options = SessionOptionsOf(flags, flags.Text("MODEL"));
  ApplyMachine(flags);
  FlagMap saved = flags.Saved();
  again.Fill(saved);
  if (again.Saved() != saved) {
    throw std::logic_error("saved flags read as others");
  }
  std::vector<InputInfo> inputs = {
      {"x", DType::kFloat, {-1, 4}, {"batch", ""}},
      {"ids", DType::kInt64, {-1, 16}, {"batch", ""}}};
  DataLayout layout = LayOutData(inputs, options.loss, DataOf(flags));
  MakeDatasetSpec(flags.List("data"), layout);
}

}  // namespace

// One argument per line. Commands that write files are parsed, not run.
void FuzzCommandLine(std::string_view bytes) {
  Silence silence;
  const Words arguments = Split(bytes);
  ShellLine(arguments);
  Printable(std::string(bytes));
  const std::string& command = arguments[0];
  if (command == "train") {
    ParseTwice({arguments.begin() + 1, arguments.end()});
  } else if (command == "shape") {
    ResolveShapes({{"x", DType::kFloat, {-1, 4}, {"batch", ""}}},
                  ParseShapeFlag({arguments.begin() + 1, arguments.end()}));
  } else if (command == "recipes" || command == "ops" || command == "version" ||
             command == "help") {
    Main(arguments);
  } else if (arguments.size() == 1) {
    Main(arguments);  // no such command
  }
}

}  // namespace onnx_fp8
