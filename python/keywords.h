// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// Translates a message of the library or of a command. It names options as the
// API or the command line does; the result names them as keywords of Python:
// "--filter-fqns head" → "`filter_fqns` head". All other text stays.
std::string InKeywords(const std::string& message);

}  // namespace onnx_fp8
