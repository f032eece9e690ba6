// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of onnxruntime-training (one file, ort_checkpoint.fbs).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// Tensors in the file's order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct OrtMoments {
  std::string parameter;
  NamedTensors moments;  // "momentum0", "momentum1"
};

struct OrtOptimizerGroup {
  std::string name;  // "group0"
  int64_t step = 0;
  float initial_lr = 0;
  std::vector<OrtMoments> parameters;
};

struct OrtCheckpoint {
  NamedTensors trained, frozen;
  std::vector<OrtOptimizerGroup> groups;  // empty before the first step
  std::map<std::string, int64_t> ints;    // properties
  std::map<std::string, float> floats;
  std::map<std::string, std::string> strings;
};

// Errors, which name the file: there is no such file; it is no checkpoint, or
// one of another version; a table points outside the file; a tensor has no
// data, or its bytes do not fit its shape; two tensors have one name.
OrtCheckpoint ReadOrtCheckpoint(const std::string& path);

// The file appears complete or not at all. Errors: it can't be written, or
// would have 2 GiB or more, which this format can't hold.
void WriteOrtCheckpoint(const OrtCheckpoint& checkpoint,
                        const std::string& path);

}  // namespace onnx_fp8
