// SPDX-License-Identifier: Apache-2.0
//
// Indices that lie on the device. One that is outside is reported when the host
// next waits.
#pragma once

#include <cstdint>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/complain.h"

namespace onnx_fp8::cuda {

struct Indices {
  const void* data;
  bool wide;  // int64, else int32
  int64_t size;
  Complaint* complaint;
  uint32_t message;

  // Index i as 0 … size-1; -1, and a complaint, if it is outside.
  __device__ int64_t At(int64_t i) const {
    int64_t index = wide ? static_cast<const int64_t*>(data)[i]
                         : static_cast<const int32_t*>(data)[i];
    if (index >= -size && index < size) return index < 0 ? index + size : index;
    Complain(complaint, message, index);
    return -1;
  }
};

inline Indices IndicesOf(const KernelContext& ctx, size_t i, int64_t size) {
  CheckIndexType(ctx, i);
  Queue& queue = QueueOf(ctx);
  return {ctx.In(i).raw(), ctx.In(i).dtype() == DType::kInt64, size,
          queue.complaint(),
          queue.MessageNumber(Concat("[", ctx.Where(), "] expected indices in ",
                                     -size, "…", size - 1, ", got "))};
}

// One index into `axis` for each element of operand 1; on other axes, the
// element's own position.
struct IndexedPlaces {
  Broadcast<1> rest;
  Indices indices;
  int64_t step;

  // Where element i lies in x; -1 if its index is outside.
  __device__ int64_t Offset(int64_t i) const {
    int64_t offset[1], index = indices.At(i);
    Offsets(rest, i, offset);
    return index < 0 ? -1 : offset[0] + index * step;
  }
};

// Errors: indices that do not lie inside x, but for the axis.
inline IndexedPlaces ElementPlacesIn(const KernelContext& ctx, const Tensor& x,
                                     int64_t axis) {
  const Shape& shape = Operand(ctx, 1).shape();
  Indices indices = IndicesOf(ctx, 1, x.dim(axis));
  bool fits = shape.size() == x.shape().size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits = shape[d] <= x.shape()[d] || static_cast<int64_t>(d) == axis;
  }
  Check(fits && shape.size() <= kMostAxes, "[", ctx.Where(),
        "] expected indices of a shape inside ", ToString(x.shape()),
        " but for axis ", axis, ", got ", ToString(shape));
  std::vector<int64_t> strides = Strides(x.shape());
  Broadcast<1> rest = {
      static_cast<int>(shape.size()), ctx.In(1).size(), {}, {}};
  for (size_t d = 0; d < shape.size(); ++d) {
    rest.sizes[d] = shape[d];
    rest.strides[0][d] = static_cast<int64_t>(d) == axis ? 0 : strides[d];
  }
  return {rest, indices, strides[static_cast<size_t>(axis)]};
}

// Tuples of `depth` indices, each into an axis of its own.
struct Tuples {
  const void* data;
  bool wide;  // int64, else int32
  int depth;
  int64_t count, per_batch, batch_step, block;
  int64_t sizes[kMostAxes], strides[kMostAxes];
  Complaint* complaint;
  uint32_t message;

  // Where the block of tuple i begins; -1 if an index is outside.
  __device__ int64_t Offset(int64_t i) const {
    int64_t offset = i / per_batch * batch_step;
    for (int d = 0; d < depth; ++d) {
      Indices one = {data, wide, sizes[d], complaint, message};
      int64_t index = one.At(i * depth + d);
      if (index < 0) return -1;
      offset += index * strides[d];
    }
    return offset;
  }
};

// The tuples of operand 1 into x, after `batch_dims` axes that both have.
// REQUIRES: both have elements, and the tuples fit x and have at most kMostAxes
// indices.
inline Tuples TuplesInto(const KernelContext& ctx, const Tensor& x,
                         size_t batch_dims) {
  const Tensor& indices = ctx.In(1);
  const Shape& shape = x.shape();
  auto depth = static_cast<size_t>(indices.dim(-1));
  std::vector<int64_t> strides = Strides(shape);
  int64_t count =
      NumElements(std::span(indices.shape()).first(indices.shape().size() - 1));
  Queue& queue = QueueOf(ctx);
  Tuples tuples = {
      .data = indices.raw(),
      .wide = indices.dtype() == DType::kInt64,
      .depth = static_cast<int>(depth),
      .count = count,
      .per_batch = count / NumElements(std::span(shape).first(batch_dims)),
      .batch_step = batch_dims > 0 ? strides[batch_dims - 1] : 0,
      .block = NumElements(std::span(shape).subspan(batch_dims + depth)),
      .complaint = queue.complaint(),
      .message = queue.MessageNumber(Concat("[", ctx.Where(),
                                            "] expected indices into ",
                                            ToString(shape), ", got "))};
  for (size_t d = 0; d < depth; ++d) {
    tuples.sizes[d] = shape[batch_dims + d];
    tuples.strides[d] = strides[batch_dims + d];
  }
  return tuples;
}

}  // namespace onnx_fp8::cuda
