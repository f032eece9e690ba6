// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// These options make a run faster. Two runs with them may differ in the last
// bits of their results. Only the provider cuda has such options; docs/cuda.md
// names their cost.
struct ProviderOptions {
  // Times several algorithms of each product when it first runs.
  bool tune = false;
  // Sums may come in any order where that is faster.
  bool nondeterministic = false;
};

// The name of the first choice that is made, for messages; null: none is.
inline const char* FirstChoice(const ProviderOptions& options) {
  if (options.tune) return "`tune`";
  return options.nondeterministic ? "`nondeterministic`" : nullptr;
}

}  // namespace onnx_fp8
