// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "onnx_fp8/check.h"

namespace onnx_fp8 {

// What was asked for is not done because the user ended it.
class Interruption : public Error {
 public:
  using Error::Error;
};

// From now on Ctrl-C (SIGINT) and SIGTERM are noted instead of ending the
// process; a second one ends it. A full disk or a closed pipe give errors
// instead of signals.
void CatchInterrupts();

// True once a signal was noted.
bool Interrupted();

}  // namespace onnx_fp8
