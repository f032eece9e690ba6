// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"

namespace onnx_fp8 {

// The request was not completed because the user ended it.
class Interruption : public Error {
 public:
  using Error::Error;
};

// From now on Ctrl-C (SIGINT) and SIGTERM are noted and do not end the process;
// a second signal ends it. A full disk or a closed pipe gives errors and no
// signals.
void CatchInterrupts();

// True once a signal was noted.
bool Interrupted();

// For a process that runs several commands: the next one starts anew.
void ForgetInterrupts();

}  // namespace onnx_fp8
