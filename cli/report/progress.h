// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "onnx_fp8/external_copy.h"

namespace onnx_fp8 {

struct ProgressStep {
  int64_t step = 0;
  int64_t total = 0;
  double loss = 0;
  double grad_norm = 0;
  double update_amax = -1;  // below 0: not measured
  double lr = 0;
  double per_second = 0;  // samples, or tokens
  const char* unit = "samples";
  double seconds_left = -1;  // below 0: unknown
};

// "step 12/100  loss 2.3026  grad norm 1.2  lr 0.001  820 samples/s  ETA 3 s".
std::string ProgressText(const ProgressStep& step);

// One of several measurements.
struct ProgressCase {
  std::string what;
  size_t index = 0;  // from 1
  size_t total = 0;
  double seconds_left = -1;  // of all; below 0: unknown
};

// "2/4  M 512, K 1024, N 8192  ETA 8 s".
std::string ProgressText(const ProgressCase& one);

// "copying to out/m.onnx.data  1.20 GiB of 25.1 GiB  910 MiB/s  ETA 26 s".
std::string ProgressText(const ExternalCopy& copy, double seconds);

// The progress line of a run. On a terminal it is rewritten in place; otherwise
// there is a line at the first step, about every ten seconds, and at the last
// step.
class Progress {
 public:
  // On ProgressOut().
  Progress();
  Progress(std::ostream& out, bool terminal) : out_(out), terminal_(terminal) {}
  ~Progress() { Close(); }

  void Step(const ProgressStep& step);
  void Case(const ProgressCase& one);
  // The first call of a copy starts its clock.
  void Copy(const ExternalCopy& copy);
  // Prints a line of its own.
  void Print(const std::string& text);
  // Ends the line that is being rewritten.
  void Close();

 private:
  using Clock = std::chrono::steady_clock;

  void Line(const std::function<std::string()>& text, bool last);

  std::ostream& out_;
  bool terminal_;
  bool open_ = false;
  Clock::time_point next_;  // the epoch means at once
  Clock::time_point copy_begin_;
};

// Shows the progress of copies. Ctrl-C ends them: throws Interruption.
ExternalCopyObserver ShowCopies(Progress& progress);

}  // namespace onnx_fp8
