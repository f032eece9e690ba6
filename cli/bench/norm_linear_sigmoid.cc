// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/benchmarks.h"
#include "cli/bench/layer_benchmark.h"

namespace onnx_fp8 {

void BenchNormLinearSigmoid(const Arguments& arguments) {
  Flags flags(
      "bench norm-linear-sigmoid",
      "Time LayerNorm without weights, a linear layer without bias and a "
      "sigmoid, forward and backward (gradients of input and weight), in high "
      "precision and with a recipe, by turns: torchao's benchmark of layers. "
      "Times are medians; the speed-up is the median of the ratios of "
      "neighboring runs; GF/s are those of the linear layer with the recipe. "
      "For --recipe-for and filters the layer is called linear.");
  std::vector<std::string> sizes = {"256", "1024"};
  LayerFlags values;
  flags.Group("Layers");
  flags.List("--sizes", &sizes,
             "all layers with M, K and N of these sizes (default: 256,1024)");
  values.AddTo(flags);
  flags.Example("onnx-fp8 bench norm-linear-sigmoid --recipe rowwise");
  flags.Example(
      "onnx-fp8 bench norm-linear-sigmoid --sizes 64,256,1024 --save "
      "speedups.json");
  if (!flags.Parse(arguments)) return;
  LayerBenchmark benchmark = {.name = "norm-linear-sigmoid",
                              .surroundings = Surroundings::kNormAndSigmoid};
  benchmark.grid = ParseSizes("--sizes", sizes);
  benchmark.sizes = GridOf(benchmark.grid);
  BenchLayers(benchmark, values);
}

}  // namespace onnx_fp8
