// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace onnx_fp8 {

// The name of a shard in an index: a file beside the index, never elsewhere,
// because the index may come from anybody. (The file may be a link, as in the
// cache of huggingface_hub.) Errors: no text, or a path; [index] names it.
std::string ShardName(const nlohmann::json& value, const std::string& index);

}  // namespace onnx_fp8
