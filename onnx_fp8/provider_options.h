// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// Options of the provider cuda; others refuse them. The first two make a run
// faster, and two runs with them may differ in the last bits of their results;
// docs/cuda.md names their cost.
struct ProviderOptions {
  // Times several algorithms of each product when it first runs.
  bool tune = false;
  // Sums may come in any order where that is faster.
  bool nondeterministic = false;
  // The device's work is recorded from the start, for SessionOptions::timeline.
  bool timeline = false;
};

// The name of the first choice that trades bits for speed, for messages; null:
// none does.
inline const char* FirstChoice(const ProviderOptions& options) {
  if (options.tune) return "`tune`";
  return options.nondeterministic ? "`nondeterministic`" : nullptr;
}

}  // namespace onnx_fp8
