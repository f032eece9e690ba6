// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/timing.h"

namespace onnx_fp8 {

RivalTimes TimesByTurns(const std::function<void()>& first,
                        const std::function<void()>& second, double seconds,
                        const std::function<void()>& after) {
  first();  // the first runs make plans and allocate
  second();
  after();
  RivalTimes times;
  for (double spent = 0;
       spent < 2 * seconds || times.first.size() < kLeastRuns;) {
    times.first.push_back(SecondsOf(first));
    times.second.push_back(SecondsOf(second));
    spent += times.first.back() + times.second.back();
    after();
  }
  return times;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  size_t half = values.size() / 2;
  if (values.size() % 2 == 1) return values[half];
  return (values[half - 1] + values[half]) / 2;
}

double SpeedUp(const RivalTimes& times) {
  std::vector<double> ratios;
  for (size_t i = 0; i < times.first.size(); ++i) {
    ratios.push_back(times.first[i] / times.second[i]);
  }
  return Median(ratios);
}

}  // namespace onnx_fp8
