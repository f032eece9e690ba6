// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/dumped_tensor.h"

#include <algorithm>

#include "base/check.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

int64_t BlocksIn(int64_t size, int64_t block) {
  return block == 0 ? 1 : (size + block - 1) / block;
}

int64_t BlockOf(int64_t i, int64_t block) { return block == 0 ? 0 : i / block; }

template <typename Code>
void DecodeAll(const DumpedTensor& from, const Tensor& scales, int64_t columns,
               Tensor* real) {
  const Code* codes = from.codes.data<Code>();
  const float* scale = scales.data<float>();
  float* out = real->data<float>();
  const int64_t across = BlocksIn(columns, from.block_columns);
  for (int64_t i = 0; i < real->size(); ++i) {
    const int64_t row = BlockOf(i / columns, from.block_rows);
    const int64_t column = BlockOf(i % columns, from.block_columns);
    out[i] = Decode(codes[i]) * scale[row * across + column];
  }
}

}  // namespace

Tensor Decoded(const DumpedTensor& dumped) {
  const Tensor& codes = dumped.codes;
  Tensor real = Tensor::Allocate(DType::kFloat, codes.shape());
  if (codes.size() == 0) return real;
  const int64_t columns = codes.rank() == 0 ? 1 : codes.dim(-1);
  const int64_t scales = BlocksIn(codes.size() / columns, dumped.block_rows) *
                         BlocksIn(columns, dumped.block_columns);
  Check(dumped.scale.size() == scales, "[", dumped.fqn, "] expected ", scales,
        " scales of ", dumped.operand, ", got ", dumped.scale.size());
  const Tensor scale = ConvertTo(dumped.scale, DType::kFloat);
  if (codes.dtype() == DType::kE4M3) {
    DecodeAll<E4M3>(dumped, scale, columns, &real);
  } else {
    Check(codes.dtype() == DType::kE5M2, "[", dumped.fqn,
          "] expected codes of 8-bit floats, got ", Name(codes.dtype()));
    DecodeAll<E5M2>(dumped, scale, columns, &real);
  }
  return real;
}

}  // namespace onnx_fp8
