// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// Translates a message of the library. It names options and functions as the
// API does; the result names them as the command line does: "`filter_fqns`
// head" → "--filter-fqns head". All other text stays.
std::string InFlags(std::string message);

}  // namespace onnx_fp8
