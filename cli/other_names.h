// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace onnx_fp8 {

// The option that other trainers call `option`, with its value if that name
// tells one: "bf16" → "dtype=bfloat16". "" if none of `options` is called so.
std::string MeantByOthers(const std::string& option,
                          const std::vector<std::string>& options);

}  // namespace onnx_fp8
