// SPDX-License-Identifier: Apache-2.0
#include "data/shard_name.h"

#include "base/check.h"

namespace onnx_fp8 {

std::string ShardName(const nlohmann::json& value, const std::string& index) {
  const std::string name =
      value.is_string() ? value.get<std::string>() : std::string();
  const bool plain = name.find('/') == std::string::npos &&
                     name.find('\0') == std::string::npos && !name.empty() &&
                     name != "." && name != "..";
  Check(plain, "[", index,
        "] expected names of files in the index' folder as shards, got ",
        value.is_string() ? "\"" + name + "\"" : value.type_name());
  return name;
}

}  // namespace onnx_fp8
