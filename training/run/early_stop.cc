// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/early_stop.h"

#include <charconv>
#include <cmath>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

template <typename T>
bool ReadWhole(const char* begin, const char* end, T* value) {
  auto [stop, error] = std::from_chars(begin, end, *value);
  return error == std::errc() && stop == end;
}

}  // namespace

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
  const char* end = text.data() + text.size();
  const size_t colon = text.find(':');
  const bool has_delta = colon != std::string::npos;
  const char* middle = has_delta ? text.data() + colon : end;
  bool fits = ReadWhole(text.data(), middle, &stop.patience);
  if (has_delta) fits &= ReadWhole(middle + 1, end, &stop.min_delta);
  Check(fits && stop.patience >= 1 && std::isfinite(stop.min_delta) &&
            stop.min_delta >= 0,
        "expected N or N:MIN_DELTA with an integer N of at least 1 and a ",
        "number of at least 0, as in 3:0.001, got \"", text, "\"");
  return stop;
}

}  // namespace onnx_fp8
