// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/random.h"
#include "graph/graph.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// Feeds for all inputs of the graph: floats are random in [-1, 1), but 7 in the
// inputs `log_sums`, which stand for logarithms of sums of exponentials. Other
// dtypes are 0.
inline TensorMap RandomFeeds(const Graph& graph,
                             std::initializer_list<std::string_view> log_sums) {
  TensorMap feeds;
  uint64_t seed = 1;
  for (const Value* input : graph.inputs) {
    Tensor t = Tensor::Zeros(input->dtype, *input->shape);
    ++seed;
    bool log_sum = std::ranges::find(log_sums, input->name) != log_sums.end();
    for (int64_t i = 0; t.dtype() == DType::kFloat && i < t.size(); ++i) {
      t.data<float>()[i] =
          log_sum ? 7 : 2 * RandomUniform(seed, static_cast<uint64_t>(i)) - 1;
    }
    feeds[input->name] = t;
  }
  return feeds;
}

// Random bytes from 1 to 126, which are no FP8 code of NaN, or bfloat16s in
// [0, 1).
inline Tensor RandomCodes(DType dtype, const Shape& shape, uint64_t seed) {
  if (dtype == DType::kBFloat16) {
    Tensor t = Tensor::Allocate(DType::kFloat, shape);
    for (int64_t i = 0; i < t.size(); ++i) {
      t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i));
    }
    return ConvertTo(t, dtype);
  }
  Tensor t = Tensor::Allocate(dtype, shape);
  auto* bytes = static_cast<uint8_t*>(t.raw());
  for (size_t i = 0; i < t.bytes(); ++i) {
    bytes[i] = static_cast<uint8_t>(1 + RandomBits(seed, i) % 126);
  }
  return t;
}

}  // namespace onnx_fp8
