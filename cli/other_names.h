// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace onnx_fp8 {

// The flag, with a value where that is known, for which other trainers have the
// name `flag`: "--dtype bfloat16" for "--bf16". "" if it is none of `flags`.
std::string MeantByOthers(const std::string& flag,
                          const std::vector<std::string>& flags);

}  // namespace onnx_fp8
