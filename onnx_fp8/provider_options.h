// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace onnx_fp8 {

// Options of the provider cuda; other providers refuse the switches. `tune`
// and `nondeterministic` make a run faster; two runs with them may differ in
// the last bits of their results. docs/cuda.md names their cost.
struct ProviderOptions {
  // Times several algorithms of each product when it first runs.
  bool tune = false;
  // Sums may come in any order where that is faster.
  bool nondeterministic = false;
  // The most bytes of workspace for a gradient of attention that is the same
  // every time, unless one group of heads of one batch needs more
  // (providers/cuda/attention/parts.h). No flag sets it; tests choose less.
  size_t attention_workspace = size_t{1} << 30;
  // The device's work is recorded from the start, for SessionOptions::timeline.
  bool timeline = false;
};

// The name, for messages, of the first option that is set and lets results
// differ between runs; null: no such option is set.
inline const char* FirstChoice(const ProviderOptions& options) {
  if (options.tune) return "`tune`";
  return options.nondeterministic ? "`nondeterministic`" : nullptr;
}

}  // namespace onnx_fp8
