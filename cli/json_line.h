// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace onnx_fp8 {

// `json` and a newline. Names come from files and need not be UTF-8.
template <typename Json>
std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace onnx_fp8
