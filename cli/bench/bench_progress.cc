// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_progress.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "base/check.h"
#include "cli/bench/timing.h"
#include "cli/interrupt.h"

namespace onnx_fp8 {

double SecondsLeft(const std::vector<double>& operations, size_t current,
                   double spent, double least, double speed) {
  double left = 0;
  for (size_t i = current; i < operations.size(); ++i) {
    // One round is not timed.
    double rounds = (kLeastRuns + 1) * operations[i];
    double takes = std::max(least, speed > 0 ? rounds / speed : 0);
    left += i == current ? std::max(takes - spent, 0.0) : takes;
  }
  return left;
}

BenchProgress::BenchProgress(std::vector<double> operations, double least)
    : operations_(std::move(operations)), least_(least) {
  CatchInterrupts();
}

void BenchProgress::Begin(const std::string& what) {
  what_ = what;
  ++begun_;
  rounds_ = 0;
  begin_ = Clock::now();
  Show();
}

void BenchProgress::Round(size_t rounds) {
  rounds_ += rounds;
  speed_ = operations_[begun_ - 1] * static_cast<double>(rounds_) /
           std::max(Spent(), 1e-9);
  Show();
}

double BenchProgress::Spent() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void BenchProgress::Show() {
  if (Interrupted()) {
    throw Interruption(Concat("interrupted in measurement ", begun_, " of ",
                              operations_.size()));
  }
  ProgressCase line = {what_, begun_, operations_.size(), -1};
  if (speed_ > 0) {
    line.seconds_left =
        SecondsLeft(operations_, begun_ - 1, Spent(), least_, speed_);
  }
  progress_.Case(line);
}

}  // namespace onnx_fp8
