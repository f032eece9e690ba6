// SPDX-License-Identifier: Apache-2.0
//
// The files of a published checkpoint, by the conventions of Hugging Face:
// model.safetensors, or several files (shards) and an index,
// model.safetensors.index.json: {"metadata": {…}, "weight_map": {tensor:
// file}}.
#pragma once

#include <map>
#include <string>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

struct WeightFiles {
  TensorMap tensors;                         // each mapped by itself
  std::map<std::string, std::string> files;  // by tensor: the path of its file
  std::string folder;                        // of the files; "": the present
  std::string remark;  // which of its files were read; "": there is no choice
};

// `path`: a safetensors file, an index, or a folder with one of the two. Of a
// folder with both the file is read, as transformers does, and a remark says
// so. Tensors of a shard that the index does not name are read too. Errors:
// ReadSafetensors'; a folder without either; an index that is none; a shard
// that does not exist or lies outside of the index' folder; a tensor in two
// shards, or not in the one that the index names.
WeightFiles ReadWeightFiles(const std::string& path);

}  // namespace onnx_fp8
