// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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

}  // namespace onnx_fp8
