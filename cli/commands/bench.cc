// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/bench/benchmarks.h"
#include "cli/commands/commands.h"
#include "cli/flags.h"
#include "onnx_fp8/option_names.h"

namespace onnx_fp8 {
namespace {

struct Benchmark {
  const char* name;
  void (*run)(const Arguments&);
  const char* summary;
};

constexpr Benchmark kBenchmarks[] = {
    {"gemm", BenchGemm, "matrix products"},
    {"linear", BenchLinear,
     "a linear layer, forward and backward, in high precision and in FP8"},
    {"norm-linear-sigmoid", BenchNormLinearSigmoid,
     "the same with LayerNorm before and sigmoid behind the layer"},
    {"attention", BenchAttention, "attention, forward and backward"},
    {"nodes", BenchNodes, "each node of a training step alone"},
};

const Benchmark* FindBenchmark(const std::string& name) {
  for (const Benchmark& benchmark : kBenchmarks) {
    if (name == benchmark.name) return &benchmark;
  }
  return nullptr;
}

[[noreturn]] void Refuse(const std::string& what) {
  std::vector<std::string> names;
  for (const Benchmark& benchmark : kBenchmarks) {
    names.emplace_back(benchmark.name);
  }
  throw OptionError("`WHAT`: expected " + Alternatives(names) + ", got \"" +
                    what + "\"");
}

}  // namespace

int Bench(const Arguments& arguments) {
  // Flags may come first, as with other commands.
  std::vector<std::string> words = arguments.words;
  auto what = std::ranges::find_if(words, FindBenchmark);
  if (what != words.end()) {
    const Benchmark* benchmark = FindBenchmark(*what);
    words.erase(what);
    benchmark->run({words});
    return 0;
  }
  if (!words.empty() && !words[0].starts_with("-")) Refuse(words[0]);
  std::string help;
  for (const Benchmark& benchmark : kBenchmarks) {
    help += std::string(help.empty() ? "" : "; ") + benchmark.name + ": " +
            benchmark.summary;
  }
  const Option own[] = {
      {"Own", "WHAT", OptionKind::kText, help.c_str()},
  };
  Flags flags({"bench",
               "Time a part of the program on this machine. `onnx-fp8 bench "
               "WHAT --help` explains one benchmark and lists its options.",
               {{"Options", {"Own", "Machine"}}},
               {"onnx-fp8 bench gemm",
                "onnx-fp8 bench linear --rows 64 --recipe rowwise",
                "onnx-fp8 bench attention --sequence 1024 --threads 1"}},
              own);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"WHAT"});
  Refuse(flags.Text("WHAT"));
}

}  // namespace onnx_fp8
