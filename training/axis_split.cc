// SPDX-License-Identifier: Apache-2.0
#include "training/axis_split.h"

#include <cstddef>
#include <cstring>

namespace onnx_fp8 {
namespace {

// Calls copy(offset in the whole, offset in the part, bytes) for each chunk of
// the rank.
template <typename F>
void ForChunks(const Tensor& whole, const AxisSplit& split, int64_t rank,
               int64_t ranks, F copy) {
  if (whole.size() == 0) return;
  const auto element = static_cast<int64_t>(whole.bytes()) / whole.size();
  const int64_t chunk = ChunkOf(whole.shape(), split, ranks) * element;
  const int64_t part = static_cast<int64_t>(whole.bytes()) / ranks;
  for (int64_t at = 0; at < part; at += chunk) {
    copy(static_cast<size_t>(at * ranks + rank * chunk),
         static_cast<size_t>(at), static_cast<size_t>(chunk));
  }
}

std::byte* Bytes(const Tensor& tensor) {
  return static_cast<std::byte*>(const_cast<void*>(tensor.raw()));
}

}  // namespace

int64_t ChunkOf(const Shape& shape, const AxisSplit& split, int64_t ranks) {
  int64_t chunk = 1;
  for (size_t i = static_cast<size_t>(split.axis); i < shape.size(); ++i) {
    chunk *= shape[i];
  }
  return chunk / split.blocks / ranks;
}

Shape PartOf(Shape shape, const AxisSplit& split, int64_t ranks) {
  shape[static_cast<size_t>(split.axis)] /= ranks;
  return shape;
}

Tensor PartOf(const Tensor& whole, const AxisSplit& split, int64_t rank,
              int64_t ranks) {
  Tensor part =
      Tensor::Allocate(whole.dtype(), PartOf(whole.shape(), split, ranks));
  ForChunks(whole, split, rank, ranks, [&](size_t from, size_t to, size_t n) {
    std::memcpy(Bytes(part) + to, Bytes(whole) + from, n);
  });
  return part;
}

void PutPart(const Tensor& part, const AxisSplit& split, int64_t rank,
             int64_t ranks, Tensor* whole) {
  ForChunks(*whole, split, rank, ranks, [&](size_t to, size_t from, size_t n) {
    std::memcpy(Bytes(*whole) + to, Bytes(part) + from, n);
  });
}

}  // namespace onnx_fp8
