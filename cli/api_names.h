// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "cli/flags.h"

namespace onnx_fp8 {

// Translates a message of the library. It names options and functions as the
// API does; the result names them as the command line does: "`filter_fqns`
// head" → "--filter-fqns head". All other text stays.
std::string InFlags(std::string message);

// SessionOptions::given: the API's names of the flags that were given.
std::set<std::string> GivenOptions(const Flags& flags);

}  // namespace onnx_fp8
