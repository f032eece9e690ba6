// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/benchmarks.h"
#include "cli/bench/layer_benchmark.h"

namespace onnx_fp8 {

void BenchNormLinearSigmoid(const Arguments& arguments) {
  const Option own[] = {
      {"Layers", "sizes", OptionKind::kList,
       "all layers with M, K and N of these sizes", "256,1024"},
  };
  Flags flags = LayerFlags(
      {"bench norm-linear-sigmoid",
       "Time LayerNorm without weights, a linear layer without bias and a "
       "sigmoid, forward and backward (gradients of input and weight), in high "
       "precision and with a recipe, by turns: torchao's benchmark of layers. "
       "Times are medians; the speed-up is the median of the ratios of "
       "neighboring runs; GF/s count the linear layer's products, with the "
       "recipe. For `recipe_for` and filters the layer is called linear.",
       {{"Layers", {"Layers"}}},
       {"onnx-fp8 bench norm-linear-sigmoid --recipe rowwise",
        "onnx-fp8 bench norm-linear-sigmoid --sizes 64,256,1024 --save "
        "speedups.json"}},
      own);
  if (!flags.Parse(arguments)) return;
  LayerBenchmark benchmark = {.name = "norm-linear-sigmoid",
                              .surroundings = Surroundings::kNormAndSigmoid};
  benchmark.grid = ParseSizes("sizes", flags.List("sizes"));
  benchmark.sizes = GridOf(benchmark.grid);
  BenchLayers(benchmark, flags);
}

}  // namespace onnx_fp8
