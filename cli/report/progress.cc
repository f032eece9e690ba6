// SPDX-License-Identifier: Apache-2.0
#include "cli/report/progress.h"

#include <unistd.h>

#include "base/check.h"
#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/report/text.h"

namespace onnx_fp8 {

Progress::Progress() : Progress(ProgressOut(), isatty(STDERR_FILENO) == 1) {}

std::string ProgressText(const ProgressStep& s) {
  bool unknown = s.grad_norm < 0;
  std::string norm =
      unknown ? "" : Concat("  grad norm ", Number(s.grad_norm, 4));
  if (s.update_amax >= 0) norm += "  update " + Number(s.update_amax, 3);
  std::string text = Concat(
      "step ", s.step, "/", s.total, "  loss ", Number(s.loss), norm, "  lr ",
      Number(s.lr, 3), "  ", Number(s.per_second, s.per_second < 1000 ? 3 : 4),
      " ", s.unit, "/s");
  if (s.seconds_left >= 0) text += "  ETA " + DurationText(s.seconds_left);
  return text;
}

std::string ProgressText(const ProgressCase& one) {
  std::string text = Concat(one.index, "/", one.total, "  ", one.what);
  if (one.seconds_left >= 0) text += "  ETA " + DurationText(one.seconds_left);
  return text;
}

std::string ProgressText(const ExternalCopy& c, double seconds) {
  auto done = static_cast<double>(c.done);
  std::string text = Concat(c.there ? "comparing with " : "copying to ", c.file,
                            "  ", ByteText(c.done), " of ", ByteText(c.total));
  if (c.done == 0 || seconds <= 0) return text;
  auto per_second = static_cast<size_t>(done / seconds);
  double left = seconds * (static_cast<double>(c.total) / done - 1);
  return text + "  " + ByteText(per_second) + "/s  ETA " + DurationText(left);
}

void Progress::Step(const ProgressStep& step) {
  Line([&] { return ProgressText(step); }, step.step == step.total);
}

void Progress::Case(const ProgressCase& one) {
  Line([&] { return ProgressText(one); }, false);
}

void Progress::Copy(const ExternalCopy& copy) {
  Clock::time_point now = Clock::now();
  if (copy.done == 0) copy_begin_ = now;
  double seconds = std::chrono::duration<double>(now - copy_begin_).count();
  Line([&] { return ProgressText(copy, seconds); }, copy.done == copy.total);
}

void Progress::Line(const std::function<std::string()>& text, bool last) {
  Clock::time_point now = Clock::now();
  if (now < next_ && !last) return;
  // A line on a terminal is rewritten at most ten times a second.
  next_ = now + std::chrono::milliseconds(terminal_ ? 100 : 10000);
  if (terminal_) {
    out_ << "\r" << Printable(text()) << "\x1b[K" << std::flush;
    open_ = true;
  } else {
    out_ << Printable(text()) << std::endl;
  }
}

void Progress::Print(const std::string& text) {
  Close();
  out_ << Printable(text) << std::endl;
}

void Progress::Close() {
  if (open_) out_ << std::endl;
  open_ = false;
}

ExternalCopyObserver ShowCopies(Progress& progress) {
  return [&progress](const ExternalCopy& copy) {
    CatchInterrupts();
    if (Interrupted()) {
      throw Interruption("interrupted: [" + copy.file + "] is not written");
    }
    progress.Copy(copy);
  };
}

}  // namespace onnx_fp8
