// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/layer_benchmark.h"

namespace onnx_fp8 {
namespace {

// The linear layers of LLaMA-2-70B, a shard of eight, as torchao's
// benchmarks/float8/bench_linear_float8.py times them.
struct NamedLayer {
  const char* name;
  int64_t k, n;
};

constexpr NamedLayer kLlama[] = {
    {"attn.wqkv", 8192, 1280},
    {"attn.w0", 1024, 8192},
    {"ffn.w13", 8192, 7168},
    {"ffn.w2", 3584, 8192},
};

ProductSize ParseShape(const std::string& text) {
  auto read = ReadProductSize(text);
  if (read && read->second.empty()) return read->first;
  throw UsageError("--shape: expected M,K,N, got \"" + text + "\"");
}

void Exclude(const Flags& flags, const char* one, const char* other) {
  if (!flags.Given(one) || !flags.Given(other)) return;
  throw UsageError(Concat(one, " and ", other, " exclude each other"));
}

}  // namespace

void BenchLinear(const Arguments& arguments) {
  Flags flags(
      "bench linear",
      "Time a linear layer without bias, forward and backward (gradients of "
      "input and weight), in high precision and with a recipe, by turns. Times "
      "are medians; the speed-up is the median of the ratios of neighboring "
      "runs; GF/s are those with the recipe. For --recipe-for and filters the "
      "layer is called linear.");
  std::vector<std::string> shapes, sizes;
  int64_t rows = 512;
  LayerFlags values;
  flags.Group("Layers");
  flags.Words(
      "--shape", &shapes,
      "M,K,N: y (M,N) = x (M,K) w (K,N); may be repeated (default: four "
      "layers of LLaMA-2-70B, cut for eight machines)");
  flags.Int("--rows", &rows, 1, "M of the default layers (default: 512)");
  flags.List("--sizes", &sizes, "all layers with M, K and N of these sizes");
  values.AddTo(flags);
  flags.Example("onnx-fp8 bench linear --rows 128 --recipe rowwise");
  flags.Example("onnx-fp8 bench linear --shape 2048,256,1024 --dtype bfloat16");
  flags.Example(
      "onnx-fp8 bench linear --sizes 64,256,1024 --save speedups.json");
  if (!flags.Parse(arguments)) return;
  Exclude(flags, "--shape", "--sizes");
  Exclude(flags, "--shape", "--rows");
  Exclude(flags, "--rows", "--sizes");
  if (flags.Given("--save") && !flags.Given("--sizes")) {
    throw UsageError("--save needs --sizes, the grid of layers to measure");
  }
  if (rows > kLargestSize) {
    throw UsageError(
        Concat("--rows: expected at most ", kLargestSize, ", got ", rows));
  }
  LayerBenchmark benchmark = {.name = "linear"};
  if (flags.Given("--sizes")) {
    benchmark.grid = ParseSizes("--sizes", sizes);
    benchmark.sizes = GridOf(benchmark.grid);
  } else if (!shapes.empty()) {
    for (const std::string& shape : shapes) {
      benchmark.sizes.push_back(ParseShape(shape));
    }
  } else {
    for (const NamedLayer& layer : kLlama) {
      benchmark.sizes.push_back({rows, layer.k, layer.n});
      benchmark.labels.push_back(layer.name);
    }
  }
  BenchLayers(benchmark, values);
}

}  // namespace onnx_fp8
