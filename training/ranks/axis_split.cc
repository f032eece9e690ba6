// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/axis_split.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace onnx_fp8 {
namespace {

int64_t SizeOf(const Shape& shape, const AxisSplit& split) {
  return shape[static_cast<size_t>(split.axis)];
}

// Elements of one index of the axis.
int64_t Inner(const Shape& shape, const AxisSplit& split) {
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(split.axis) + 1; i < shape.size(); ++i) {
    inner *= shape[i];
  }
  return inner;
}

// Calls copy(offset in the whole, offset in the part, bytes) for each chunk of
// the rank that exists.
template <typename F>
void ForChunks(const Tensor& whole, const AxisSplit& split, int64_t rank,
               int64_t ranks, F copy) {
  if (whole.size() == 0) return;
  const auto element = static_cast<int64_t>(whole.bytes()) / whole.size();
  const int64_t chunk = ChunkOf(whole.shape(), split, ranks) * element;
  const int64_t block = SizeOf(whole.shape(), split) / split.blocks *
                        Inner(whole.shape(), split) * element;
  const int64_t begin = std::min(rank * chunk, block);
  const int64_t n = std::min(chunk, block - begin);
  const auto blocks = static_cast<int64_t>(whole.bytes()) / block;
  for (int64_t i = 0; n > 0 && i < blocks; ++i) {
    copy(static_cast<size_t>(i * block + begin), static_cast<size_t>(i * chunk),
         static_cast<size_t>(n));
  }
}

std::byte* FirstByte(const Tensor& tensor) {
  return static_cast<std::byte*>(const_cast<void*>(tensor.raw()));
}

}  // namespace

bool IsEven(const Shape& shape, const AxisSplit& split, int64_t ranks) {
  return SizeOf(shape, split) % (split.blocks * ranks) == 0;
}

int64_t ChunkOf(const Shape& shape, const AxisSplit& split, int64_t ranks) {
  const int64_t block = SizeOf(shape, split) / split.blocks;
  return (block + ranks - 1) / ranks * Inner(shape, split);
}

Shape PartOf(Shape shape, const AxisSplit& split, int64_t ranks) {
  const int64_t block = SizeOf(shape, split) / split.blocks;
  shape[static_cast<size_t>(split.axis)] =
      (block + ranks - 1) / ranks * split.blocks;
  return shape;
}

Tensor PartOf(const Tensor& whole, const AxisSplit& split, int64_t rank,
              int64_t ranks) {
  Tensor part =
      Tensor::Zeros(whole.dtype(), PartOf(whole.shape(), split, ranks));
  ForChunks(whole, split, rank, ranks, [&](size_t from, size_t to, size_t n) {
    std::memcpy(FirstByte(part) + to, FirstByte(whole) + from, n);
  });
  return part;
}

void PutPart(const Tensor& part, const AxisSplit& split, int64_t rank,
             int64_t ranks, Tensor* whole) {
  ForChunks(*whole, split, rank, ranks, [&](size_t to, size_t from, size_t n) {
    std::memcpy(FirstByte(*whole) + to, FirstByte(part) + from, n);
  });
}

ElementPlaces PlacesOfPart(const Shape& whole, const AxisSplit& split,
                           int64_t rank, int64_t ranks) {
  if (NumElements(whole) == 0) return {};
  const int64_t chunk = ChunkOf(whole, split, ranks);
  const int64_t block = SizeOf(whole, split) / split.blocks;
  return {.run = chunk,
          .stride = block * Inner(whole, split),
          .begin = rank * chunk};
}

}  // namespace onnx_fp8
