// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/random_tensor.h"

#include <random>

namespace onnx_fp8 {

Tensor RandomTensor(const Shape& shape, DType dtype, uint64_t seed,
                    float scale) {
  Tensor tensor = Tensor::Allocate(DType::kFloat, shape);
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    float value = static_cast<float>(random() % 4096) / 2048 - 1;
    tensor.data<float>()[i] = value * scale;
  }
  return ConvertTo(tensor, dtype);
}

}  // namespace onnx_fp8
