// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <sstream>
#include <string>

namespace onnx_fp8 {

// The stream for the results of a command: standard output, or the innermost
// CapturedOutput of this thread.
std::ostream& Out();

// While it lives, a host program gets the results of this thread's commands.
class CapturedOutput {
 public:
  CapturedOutput();
  ~CapturedOutput();
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  std::string text() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
  std::ostream* before_;
};

}  // namespace onnx_fp8
