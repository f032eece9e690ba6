// SPDX-License-Identifier: Apache-2.0
//
// A folder for programs that serve a model, by the conventions of Hugging Face:
// config.json, model.safetensors or shards with an index, the files of a
// tokenizer. FP8 weights have the layout that data/scaled_weights.h reads.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

// The part of a weight [out, in] that has one scale.
enum class CodeScales {
  kTensor,  // scale: [1]
  kRows,    // [out, 1]
  kBlocks,  // 128 x 128, smaller at the edges: [ceil(out/128), ceil(in/128)]
  kGroups,  // 1 x 32, MX: [out, in/32], exponents
};

// The weight of a linear layer: each number is code · scale.
struct ServedCodes {
  CodeScales scales;
  TensorSource codes;  // [out, in], E4M3
  // Floats; of kGroups bytes that stand for powers of two, as E8M0 does. A
  // folder pulls it right behind the codes.
  TensorSource scale;
  // The one scale of all inputs, if servers need not measure them: an input is
  // code · scale, too. Layers of kTensor and kRows alone have it.
  std::optional<float> input_scale = {};
};

struct ServedTensors {
  SourceMap tensors;                          // by name
  std::map<std::string, ServedCodes> layers;  // by module, beside `tensors`
  // Modules whose matrices are no codes, for modules_to_not_convert.
  std::vector<std::string> whole;
  DType dtype = DType::kFloat;  // the one that config.json names
};

// Most bytes of tensors in one file, unless one tensor has more.
inline constexpr size_t kShardBytes = 5'000'000'000;

// Writes a new folder, tensor by tensor, under a temporary name, and renames it
// when it is whole. Blocks of layers whose sides are multiples of 128 are
// DeepSeek's layout, which transformers and vLLM read; everything else in FP8
// is compressed-tensors'. Each tensor is pulled once, in the order of names.
// `like`: a folder whose config.json is taken over, with another dtype and
// quantization_config, and whose generation config, tokenizer and code are
// copied; "": config.json has these two entries alone. Returns remarks for the
// user. Errors: something but an empty folder has the name; `like` has no
// config.json, or one that is none; WriteSafetensors'.
std::vector<std::string> WriteServedFolder(const std::string& folder,
                                           const std::string& like,
                                           const ServedTensors& served,
                                           size_t shard_bytes = kShardBytes);

}  // namespace onnx_fp8
