// SPDX-License-Identifier: Apache-2.0
//
// Weights that a checkpoint stores as FP8 codes with scales in other tensors.
// The names of these tensors are the ones of DeepSeek, Hugging Face,
// compressed-tensors, vLLM and ModelOpt. In all of their files a weight is code
// · scale.
#pragma once

#include <map>
#include <string>

#include "data/weight_files.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

// One tensor of a checkpoint, which may become a weight of a model.
struct StoredWeight {
  std::string file;  // the path of the file
  std::string name;  // in the file
  TensorSource source;
};

// The key is the tensor's name, or its new name after `rename`.
using StoredWeights = std::map<std::string, StoredWeight>;

// The tensors of the files. FP8 codes with a scale become one source of floats,
// which reads and decodes both when it is pulled; their scale goes. The scale
// of X, or P.weight, is X_scale_inv, X_scale, P.scale or P.qscale_weight: a
// float of any width, or E8M0 (also as uint8), for the tensor, for each row, or
// for each block of a matrix. A config.json beside the files gives the size of
// the blocks; without it they are 128 x 128 or, with E8M0, 1 x 32. Blocks at
// the edges are smaller. Codes without a scale stay codes. Errors: two scales;
// a scale of another dtype or shape; a config.json that is none. Pull of a
// source fails if a scale is negative or not finite, if a scale is 0 and one of
// its codes is not, or if a code is NaN.
StoredWeights DecodeScaled(WeightFiles files);

}  // namespace onnx_fp8
