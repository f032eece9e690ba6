// SPDX-License-Identifier: Apache-2.0
//
// Where the words of a command go: the terminal, or the host program that runs
// the command.
#pragma once

#include <functional>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

namespace onnx_fp8 {

// The stream for results: standard output with control characters escaped, or
// the innermost CapturedOutput of this thread. Callers escape names' newlines.
std::ostream& Out();

// The stream for progress lines: standard error. A host shows progress itself:
// under a CapturedOutput they go nowhere.
std::ostream& ProgressOut();

// Tell people something beside the results: lines "onnx-fp8: note: …" and
// "onnx-fp8: warning: …" on standard error, or a call of the innermost
// CapturedOutput's function.
void Note(const std::string& text);
void Notes(const std::vector<std::string>& texts);
void Warn(const std::string& text);

// While it lives, a host program gets the results and notes of this thread's
// commands.
class CapturedOutput {
 public:
  using Listener = std::function<void(const std::string& note)>;

  explicit CapturedOutput(Listener listener);
  ~CapturedOutput();
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  std::ostream& stream() { return stream_; }
  std::string text() const { return stream_.str(); }
  void Tell(const std::string& note) const { listener_(note); }

 private:
  std::ostringstream stream_;
  Listener listener_;
  CapturedOutput* before_;
};

}  // namespace onnx_fp8
