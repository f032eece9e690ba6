// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

template <typename T>
T Larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return std::max(a, b);
}

// Integers wrap around, as those of the kernels do.
template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

// Reduces x (ranks, count) to y (count). It begins with the first row of x.
template <typename T>
void ReduceRows(Reduction reduction, const std::byte* x, std::byte* y,
                size_t ranks, size_t count) {
  const T* row = reinterpret_cast<const T*>(x);
  T* sum = reinterpret_cast<T*>(y);
  std::copy_n(row, count, sum);
  for (size_t r = 1; r < ranks; ++r) {
    row += count;
    if (reduction == Reduction::kSum) {
      for (size_t i = 0; i < count; ++i) sum[i] = Sum(sum[i], row[i]);
    } else {
      for (size_t i = 0; i < count; ++i) sum[i] = Larger(sum[i], row[i]);
    }
  }
}

using ReduceFunction = void (*)(Reduction, const std::byte*, std::byte*, size_t,
                                size_t);

ReduceFunction FindReduce(const char* op, DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return ReduceRows<float>;
    case DType::kDouble:
      return ReduceRows<double>;
    case DType::kInt32:
      return ReduceRows<int32_t>;
    case DType::kInt64:
      return ReduceRows<int64_t>;
    default:
      Fail("[", op, "] expected float, double, int32 or int64, got ",
           Name(dtype));
  }
}

}  // namespace

// Each rank sums one block of a message. Then all ranks gather the sums.
void Communicator::AllReduce(Reduction reduction, DType dtype, const void* x,
                             void* y, size_t count) {
  const ReduceFunction reduce = FindReduce("AllReduce", dtype);
  const size_t element = ByteSize(dtype), ranks = static_cast<size_t>(size());
  if (ranks == 1) {
    if (count > 0) std::memmove(y, x, count * element);
    return;
  }
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(y);
  std::vector<std::byte> sent, received, sum;
  for (size_t begin = 0; begin < count;) {
    const size_t block =
        std::min(message_bytes_ / element, (count - begin + ranks - 1) / ranks);
    const size_t n = std::min(block * ranks, count - begin);
    const size_t bytes = block * element;
    sent.assign(ranks * bytes, std::byte{0});
    received.resize(ranks * bytes);
    sum.resize(bytes);
    std::memcpy(sent.data(), from + begin * element, n * element);
    Exchange(sent.data(), received.data(), bytes);
    reduce(reduction, received.data(), sum.data(), ranks, block);
    Gather(sum.data(), received.data(), bytes);
    std::memcpy(to + begin * element, received.data(), n * element);
    wire_bytes_->all_reduce += static_cast<int64_t>(2 * (ranks - 1) * bytes);
    begin += n;
  }
}

void Communicator::AllGather(const void* x, void* y, size_t bytes) {
  const size_t ranks = static_cast<size_t>(size());
  wire_bytes_->all_gather += static_cast<int64_t>((ranks - 1) * bytes);
  if (bytes == 0) return;
  if (bytes <= message_bytes_) {
    Gather(x, y, bytes);
    return;
  }
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(y);
  std::vector<std::byte> received(ranks * message_bytes_);
  for (size_t begin = 0; begin < bytes; begin += message_bytes_) {
    const size_t n = std::min(message_bytes_, bytes - begin);
    Gather(from + begin, received.data(), n);
    for (size_t r = 0; r < ranks; ++r) {
      std::memcpy(to + r * bytes + begin, received.data() + r * n, n);
    }
  }
}

void Communicator::ReduceScatter(DType dtype, const void* x, void* y,
                                 size_t count) {
  const ReduceFunction reduce = FindReduce("ReduceScatter", dtype);
  const size_t element = ByteSize(dtype), ranks = static_cast<size_t>(size());
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(y);
  const size_t most = message_bytes_ / element;
  std::vector<std::byte> sent, received;
  for (size_t begin = 0; begin < count; begin += most) {
    const size_t n = std::min(most, count - begin), bytes = n * element;
    sent.resize(ranks * bytes);
    received.resize(ranks * bytes);
    for (size_t r = 0; r < ranks; ++r) {
      std::memcpy(sent.data() + r * bytes, from + (r * count + begin) * element,
                  bytes);
    }
    Exchange(sent.data(), received.data(), bytes);
    reduce(Reduction::kSum, received.data(), to + begin * element, ranks, n);
    wire_bytes_->reduce_scatter += static_cast<int64_t>((ranks - 1) * bytes);
  }
}

void Communicator::Broadcast(void* data, size_t bytes, int root) {
  auto* at = static_cast<std::byte*>(data);
  for (size_t begin = 0; begin < bytes; begin += message_bytes_) {
    Send(at + begin, std::min(message_bytes_, bytes - begin), root);
  }
  if (rank() != root) wire_bytes_->broadcast += static_cast<int64_t>(bytes);
}

std::unique_ptr<Communicator> Communicator::MakeGroup(int) {
  Fail("[ranks] expected a transport with groups of ranks, got one without");
}

std::unique_ptr<Communicator> Communicator::Split(int color) {
  std::unique_ptr<Communicator> group = MakeGroup(color);
  group->wire_bytes_ = wire_bytes_;
  return group;
}

}  // namespace onnx_fp8
