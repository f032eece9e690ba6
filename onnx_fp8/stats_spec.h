// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onnx_fp8 {

// Which steps measure their casts to FP8, and of which layers.
struct StatsSpec {
  int64_t every = 0;                // steps; 0: none measures
  std::vector<std::string> layers;  // globs over names; empty: all

  bool Measures(int64_t step) const { return every > 0 && step % every == 0; }
};

// Reads "every=100,layers=*mlp*,*attn*". With an empty text no step measures.
// Errors: OptionError about another form.
StatsSpec ParseStats(const std::string& text);

}  // namespace onnx_fp8
