// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks of layers share: their flags and their output.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/layer_model.h"
#include "cli/bench/sizes.h"
#include "cli/flags.h"

namespace onnx_fp8 {

// The options of a benchmark of layers: the sections of `help`, and the options
// that all these benchmarks share. `own`: rows of this benchmark alone.
Flags LayerFlags(CommandHelp help, std::span<const Option> own);

struct LayerBenchmark {
  const char* name;
  Surroundings surroundings = Surroundings::kNone;
  std::vector<ProductSize> sizes;
  std::vector<std::string> labels = {};  // of the sizes, for people; or none
  std::vector<int64_t> grid = {};  // `sizes` is GridOf(grid); --save needs it
};

// Applies the machine's flags, times each layer in high precision and with the
// recipe, prints the times and writes the file of --save. Ctrl-C ends it after
// the layers that are done are printed.
void BenchLayers(const LayerBenchmark& benchmark, const OptionSet& flags);

}  // namespace onnx_fp8
