// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include "cli/text.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {

std::string ProgressText(const ProgressStep& s) {
  std::string text = Concat(
      "step ", s.step, "/", s.total, "  loss ", Number(s.loss), "  grad norm ",
      Number(s.grad_norm, 4), "  lr ", Number(s.lr, 3), "  ",
      Number(s.per_second, s.per_second < 1000 ? 3 : 4), " ", s.unit, "/s");
  if (s.seconds_left >= 0) text += "  ETA " + DurationText(s.seconds_left);
  return text;
}

void Progress::Step(const ProgressStep& step) {
  Clock::time_point now = Clock::now();
  bool last = step.step == step.total;
  if (now < next_ && !last) return;
  // A terminal is rewritten at most ten times a second.
  next_ = now + std::chrono::milliseconds(terminal_ ? 100 : 10000);
  if (terminal_) {
    out_ << "\r" << ProgressText(step) << "\x1b[K" << std::flush;
    open_ = true;
  } else {
    out_ << ProgressText(step) << std::endl;
  }
}

void Progress::Note(const std::string& text) {
  Close();
  out_ << text << std::endl;
}

void Progress::Close() {
  if (open_) out_ << std::endl;
  open_ = false;
}

}  // namespace onnx_fp8
