// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// A message of the library, which names options and functions as the API does,
// in the words of the command line: "`filter_fqns` head" → "--filter-fqns
// head". All else stays.
std::string InFlags(std::string message);

}  // namespace onnx_fp8
