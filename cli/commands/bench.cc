// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/bench/benchmarks.h"
#include "cli/commands/commands.h"
#include "cli/options.h"

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

// "gemm, linear or attention".
std::string Names() {
  std::string names;
  size_t left = std::size(kBenchmarks);
  for (const Benchmark& benchmark : kBenchmarks) {
    names += benchmark.name;
    if (--left > 0) names += left == 1 ? " or " : ", ";
  }
  return names;
}

[[noreturn]] void Refuse(const std::string& what) {
  throw UsageError("WHAT: expected " + Names() + ", got \"" + what + "\"");
}

}  // namespace

int Bench(const Arguments& arguments) {
  // Flags may come first, as with other commands.
  auto what = std::ranges::find_if(
      arguments, [](const std::string& word) { return FindBenchmark(word); });
  if (what != arguments.end()) {
    Arguments rest(arguments.begin(), what);
    rest.insert(rest.end(), what + 1, arguments.end());
    FindBenchmark(*what)->run(rest);
    return 0;
  }
  if (!arguments.empty() && !arguments[0].starts_with("-")) {
    Refuse(arguments[0]);
  }
  std::string help;
  for (const Benchmark& benchmark : kBenchmarks) {
    help += std::string(help.empty() ? "" : "; ") + benchmark.name + ": " +
            benchmark.summary;
  }
  Flags flags(
      "bench",
      "Time a part of the program on this machine. `onnx-fp8 bench WHAT "
      "--help` explains one benchmark and lists its flags.");
  std::string name;
  MachineFlags machine;
  flags.Positional("WHAT", &name, help);
  machine.AddTo(flags);
  flags.Example("onnx-fp8 bench gemm");
  flags.Example("onnx-fp8 bench linear --rows 64 --recipe rowwise");
  flags.Example("onnx-fp8 bench attention --sequence 1024 --threads 1");
  if (flags.Parse(arguments)) Refuse(name);
  return 0;
}

}  // namespace onnx_fp8
