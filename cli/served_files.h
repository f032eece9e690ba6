// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The values of the option `format`, as Option::More::choices has them.
inline constexpr char kServedFormats[] = "hf-fp8|bf16|onnx-fp8";

// What the options `format`, `like` and `external_data` ask for. `option`: the
// name of the one that is `path`. Errors: OptionError for options that do not
// belong together.
ServedFiles ServedFilesOf(const std::string& format, const std::string& option,
                          const std::string& path, const std::string& like,
                          bool external_data);

}  // namespace onnx_fp8
