// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/early_stop.h"

#include <cmath>
#include <string_view>

#include "base/check.h"
#include "base/number_text.h"

namespace onnx_fp8 {
void EarlyStop::Take(double score, int64_t step) {
  // No score is beyond a best one of NaN.
  if (std::isnan(score) || score <= best + min_delta) {
    ++not_better;
    return;
  }
  best = score;
  best_step = step;
  not_better = 0;
}

EarlyStop ParseEarlyStop(const std::string& text) {
  EarlyStop stop;
  if (text.empty()) return stop;
  const size_t colon = text.find(':');
  bool fits =
      ReadNumber(std::string_view(text).substr(0, colon), &stop.patience);
  if (colon != std::string::npos) {
    fits &=
        ReadNumber(std::string_view(text).substr(colon + 1), &stop.min_delta);
  }
  Check(fits && stop.patience >= 1 && std::isfinite(stop.min_delta) &&
            stop.min_delta >= 0,
        "expected N or N:MIN_DELTA with an integer N of at least 1 and a ",
        "number of at least 0, as in 3:0.001, got \"", text, "\"");
  return stop;
}

}  // namespace onnx_fp8
