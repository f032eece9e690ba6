// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace onnx_fp8 {

// Ends a run when its validations no longer get better, by the rule of Keras'
// EarlyStopping. A larger score is better.
struct EarlyStop {
  // The run ends after so many validations in a row that are not better; 0: it
  // never ends early.
  int64_t patience = 0;
  double min_delta =
      0;  // a score is better if it exceeds the best one by more than this

  // What the run has seen so far.
  double best = std::numeric_limits<double>::quiet_NaN();  // NaN: no score yet
  int64_t best_step = 0;
  int64_t not_better = 0;  // validations since

  bool Ends() const { return patience > 0 && not_better >= patience; }
  // The next validation. A score of NaN is not better.
  void Take(double score, int64_t step);
};

// "5" or "5:0.001": patience and min_delta. "": the run does not end early.
// Errors: another text.
EarlyStop ParseEarlyStop(const std::string& text);

}  // namespace onnx_fp8
