// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>

namespace onnx_fp8 {

// Tells losses that jump from the ones before them.
class LossWatch {
 public:
  // `factor`: 0: none jumps.
  explicit LossWatch(double factor) : factor_(factor) {}

  // Returns the median of the last 32 finite losses before this one, if `loss`
  // is more than `factor` times that; else 0. The first 8 are not judged, and
  // neither is a loss after a median that is not positive.
  double Jumped(double loss);

 private:
  double factor_;
  std::deque<double> last_;
};

}  // namespace onnx_fp8
