// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"

namespace onnx_fp8 {

// Messages name options as the API does, in backticks: `batch_size`.

// An option does not fit the model or another option: the caller's mistake, not
// a file's.
class OptionError : public Error {
 public:
  using Error::Error;
};

}  // namespace onnx_fp8
