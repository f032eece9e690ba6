// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace onnx_fp8 {

// The option, with a value where that is known, for which other trainers have
// the name `option`: "dtype=bfloat16" for "bf16". "" if it is none of
// `options`.
std::string MeantByOthers(const std::string& option,
                          const std::vector<std::string>& options);

}  // namespace onnx_fp8
