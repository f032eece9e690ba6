// SPDX-License-Identifier: Apache-2.0
//
// Which files an item of a list of data files names.
#pragma once

#include <string>
#include <vector>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// A path of a file is that file, whether it exists or not. A folder is its
// token shards: the files that its index.json lists, in that order, or without
// an index its .bin files, sorted by name. Another path that holds *, ? or [ is
// a shell pattern: it stands for the files that match it, sorted by name.
// Errors: a folder without shards, a pattern that nothing fits,
// ReadTokenIndex's.
std::vector<std::string> DataFiles(const std::string& item, DType token_dtype);

}  // namespace onnx_fp8
