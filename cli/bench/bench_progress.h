// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cli/report/progress.h"

namespace onnx_fp8 {

// Seconds until all measurements are done. Each takes `least` seconds, or
// longer for the runs that it needs at least, `operations` per round of runs at
// `speed` operations per second (0: not known). The one at `current` began
// `spent` seconds ago.
double SecondsLeft(const std::vector<double>& operations, size_t current,
                   double spent, double least, double speed);

// Shows the present measurement and the time left on stderr. Ctrl-C ends all
// measurements: Begin and Round throw Interruption.
class BenchProgress {
 public:
  // `operations`: in one round of each measurement. `least`: seconds that each
  // takes.
  BenchProgress(std::vector<double> operations, double least);

  // The next measurement begins; `what` names it.
  void Begin(const std::string& what);
  // The measurement has done `rounds` more rounds.
  void Round(size_t rounds = 1);

 private:
  using Clock = std::chrono::steady_clock;

  double Spent() const;
  void Show();

  std::vector<double> operations_;
  double least_;
  double speed_ = 0;
  size_t begun_ = 0;
  size_t rounds_ = 0;  // of the present measurement
  std::string what_;
  Clock::time_point begin_;
  Progress progress_;
};

}  // namespace onnx_fp8
