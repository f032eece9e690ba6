// SPDX-License-Identifier: Apache-2.0
//
// Messages refer to an option as `batch_size`, with a value as `dtype=float16`,
// to an argument without a flag as `MODEL`, to a command as `inspect()`. Each
// host shows such a reference in its own way.
#pragma once

#include <string>
#include <vector>

namespace onnx_fp8 {

struct HostNames {
  // `name`: "batch_size" or "MODEL"; `value`: "" if the message has none.
  std::string (*option)(const std::string& name, const std::string& value);
  std::string (*command)(const std::string& name);
};

// The message with the references as `host` writes them; all other text stays.
std::string NamedBy(const HostNames& host, const std::string& message);

// "batch_size", "float16" → `batch_size=float16`; without a value `batch_size`.
std::string Reference(const std::string& name, const std::string& value = "");

// "train, eval or as-exported".
std::string Alternatives(const std::vector<std::string>& words);

}  // namespace onnx_fp8
