// SPDX-License-Identifier: Apache-2.0
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
  throw OptionError("`shape`: expected M,K,N, got \"" + text + "\"");
}

}  // namespace

void BenchLinear(const Arguments& arguments) {
  const Option own[] = {
      {"Layers", "shape", OptionKind::kWords,
       "M,K,N: y (M,N) = x (M,K) w (K,N); may be repeated (default: four "
       "layers of LLaMA-2-70B, cut for eight machines)"},
      {"Layers",
       "rows",
       OptionKind::kInt,
       "M of the default layers",
       "512",
       {.min = 1, .max = kLargestSize}},
      {"Layers", "sizes", OptionKind::kList,
       "all layers with M, K and N of these sizes"},
  };
  Flags flags = LayerFlags(
      {"bench linear",
       "Time a linear layer without bias, forward and backward (gradients of "
       "input and weight), in high precision and with a recipe, by turns. "
       "Times are medians; the speed-up is the median of the ratios of "
       "neighboring runs; GF/s are measured with the recipe. For `recipe_for` "
       "and filters the layer is called linear.",
       {{"Layers", {"Layers"}}},
       {"onnx-fp8 bench linear --rows 128 --recipe rowwise",
        "onnx-fp8 bench linear --shape 2048,256,1024 --dtype bfloat16",
        "onnx-fp8 bench linear --sizes 64,256,1024 --save speedups.json"}},
      own);
  if (!flags.Parse(arguments)) return;
  flags.Exclude("shape", "sizes");
  flags.Exclude("shape", "rows");
  flags.Exclude("rows", "sizes");
  if (flags.Given("save") && !flags.Given("sizes")) {
    throw OptionError("`save` needs `sizes`, the grid of layers to measure");
  }
  LayerBenchmark benchmark = {.name = "linear"};
  if (flags.Given("sizes")) {
    benchmark.grid = ParseSizes("sizes", flags.List("sizes"));
    benchmark.sizes = GridOf(benchmark.grid);
  } else if (flags.Given("shape")) {
    for (const std::string& shape : flags.List("shape")) {
      benchmark.sizes.push_back(ParseShape(shape));
    }
  } else {
    for (const NamedLayer& layer : kLlama) {
      benchmark.sizes.push_back({flags.Int("rows"), layer.k, layer.n});
      benchmark.labels.push_back(layer.name);
    }
  }
  BenchLayers(benchmark, flags);
}

}  // namespace onnx_fp8
