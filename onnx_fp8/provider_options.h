// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// Where speed is chosen before the same bits every time. The provider cuda has
// these choices; docs/cuda.md says what they cost.
struct ProviderOptions {
  // Times several algorithms of each product when it first runs.
  bool tune = false;
  // Sums may come in any order where that is faster.
  bool nondeterministic = false;
};

}  // namespace onnx_fp8
