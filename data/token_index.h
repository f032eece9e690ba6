// SPDX-License-Identifier: Apache-2.0
//
// The index of a folder of token shards, index.json:
//
//   {"token_dtype": "uint16",
//    "shards": [{"file": "train-0.bin", "tokens": 100000000}, …]}
#pragma once

#include <string>
#include <vector>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

inline constexpr char kTokenIndex[] = "index.json";

// The paths of the shards, in the order of the index. Errors: another form,
// another type of tokens than `dtype`, no shards, a shard twice, outside the
// folder or not named .bin, a file that is missing or holds another number of
// tokens.
std::vector<std::string> ReadTokenIndex(const std::string& path, DType dtype);

}  // namespace onnx_fp8
