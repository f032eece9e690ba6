// SPDX-License-Identifier: Apache-2.0
//
// How benchmarks repeat and time a run.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace onnx_fp8 {

// Timed runs, however long they take.
inline constexpr size_t kLeastRuns = 3;

// At least a nanosecond.
template <typename Run>
double SecondsOf(const Run& run) {
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  run();
  std::chrono::duration<double> took = Clock::now() - begin;
  return std::max(took.count(), 1e-9);
}

// Seconds of single runs, ascending, for at least `seconds`.
template <typename Run>
std::vector<double> Times(const Run& run, double seconds) {
  run();  // the first one allocates
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < kLeastRuns;) {
    times.push_back(SecondsOf(run));
    spent += times.back();
  }
  std::ranges::sort(times);
  return times;
}

// Seconds of the runs of two rivals, in the order of the runs.
struct RivalTimes {
  std::vector<double> first, second;
};

// Runs `first` and `second` in turns, each for about `seconds` in all. Other
// work of the machine then slows both of them equally. Calls `after` after each
// pair of runs. The first pair is not timed, but `after` is called after it
// too.
RivalTimes TimesByTurns(const std::function<void()>& first,
                        const std::function<void()>& second, double seconds,
                        const std::function<void()>& after);

// REQUIRES: not empty.
double Median(std::vector<double> values);

// How many times as fast the second rival is: the median over the pairs of
// runs.
double SpeedUp(const RivalTimes& times);

}  // namespace onnx_fp8
