// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "collectives/ring_cost.h"

namespace onnx_fp8 {
namespace {

// What a rank sends and receives stays in a cache while it is summed: the
// messages of all ranks together have at most kCacheBytes, but each at least
// kLeastBytes.
constexpr size_t kCacheBytes = size_t{2} << 20, kLeastBytes = size_t{64} << 10;

template <typename T>
T Larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return std::max(a, b);
}

// Integers wrap around, as in the kernels.
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

size_t CountOf(std::span<const Transfer> tensors) {
  size_t count = 0;
  for (const Transfer& t : tensors) count += t.count;
  return count;
}

const std::byte* At(const void* data, size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}
std::byte* At(void* data, size_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}

// Elements of one tensor in a message: from `begin` in the tensor, from `at` in
// the message.
struct Piece {
  const Transfer* tensor;
  size_t begin, at, count;
};

// The pieces of elements [begin, begin + n), if all tensors stand in one row.
template <typename F>
void ForEachPiece(std::span<const Transfer> tensors, size_t begin, size_t n,
                  F&& f) {
  size_t first = 0;  // of the tensor
  for (const Transfer& t : tensors) {
    const size_t from = std::max(first, begin);
    const size_t to = std::min(first + t.count, begin + n);
    if (from < to) f(Piece{&t, from - first, from - begin, to - from});
    first += t.count;
  }
}

}  // namespace

int64_t Communicator::Received(std::string_view op, size_t count,
                               size_t element) const {
  return ReceivedBytes(op, static_cast<int64_t>(count),
                       static_cast<int64_t>(element), size());
}

size_t Communicator::ReducedAtOnce() const {
  const size_t bytes = kCacheBytes / static_cast<size_t>(size());
  return std::min(message_bytes_, std::max(bytes, kLeastBytes));
}

// Each rank sums one block of a message. Then all ranks gather the sums.
void Communicator::AllReduce(Reduction reduction, DType dtype,
                             std::span<const Transfer> tensors) {
  const ReduceFunction reduce = FindReduce("AllReduce", dtype);
  const size_t element = ByteSize(dtype), ranks = static_cast<size_t>(size());
  const size_t count = CountOf(tensors);
  if (ranks == 1) {
    for (const Transfer& t : tensors) {
      if (t.count > 0) std::memmove(t.y, t.x, t.count * element);
    }
    return;
  }
  std::vector<std::byte> sent, received, sum;
  const size_t most = ReducedAtOnce() / element;
  for (size_t begin = 0; begin < count;) {
    const size_t block = std::min(most, (count - begin + ranks - 1) / ranks);
    const size_t n = std::min(block * ranks, count - begin);
    const size_t bytes = block * element;
    sent.resize(ranks * bytes);
    received.resize(ranks * bytes);
    sum.resize(bytes);
    // All blocks have one size, so the last one may end with padding.
    std::fill(sent.begin() + static_cast<ptrdiff_t>(n * element), sent.end(),
              std::byte{0});
    ForEachPiece(tensors, begin, n, [&](const Piece& p) {
      std::memcpy(sent.data() + p.at * element,
                  At(p.tensor->x, p.begin * element), p.count * element);
    });
    Exchange(sent.data(), received.data(), bytes);
    reduce(reduction, received.data(), sum.data(), ranks, block);
    Gather(sum.data(), received.data(), bytes);
    ForEachPiece(tensors, begin, n, [&](const Piece& p) {
      std::memcpy(At(p.tensor->y, p.begin * element),
                  received.data() + p.at * element, p.count * element);
    });
    wire_bytes_->all_reduce += Received("AllReduce", n, element);
    begin += n;
  }
}

void Communicator::AllGather(std::span<const Transfer> tensors) {
  const size_t ranks = static_cast<size_t>(size()), bytes = CountOf(tensors);
  wire_bytes_->all_gather += Received("AllGather", bytes, 1);
  if (bytes == 0) return;
  if (tensors.size() == 1 && bytes <= message_bytes_) {
    Gather(tensors[0].x, tensors[0].y, bytes);
    return;
  }
  const size_t most = std::min(bytes, message_bytes_);
  std::vector<std::byte> sent(most), received(ranks * most);
  for (size_t begin = 0; begin < bytes; begin += most) {
    const size_t n = std::min(most, bytes - begin);
    ForEachPiece(tensors, begin, n, [&](const Piece& p) {
      std::memcpy(sent.data() + p.at, At(p.tensor->x, p.begin), p.count);
    });
    Gather(sent.data(), received.data(), n);
    ForEachPiece(tensors, begin, n, [&](const Piece& p) {
      for (size_t r = 0; r < ranks; ++r) {
        std::memcpy(At(p.tensor->y, r * p.tensor->count + p.begin),
                    received.data() + r * n + p.at, p.count);
      }
    });
  }
}

void Communicator::ReduceScatter(DType dtype,
                                 std::span<const Transfer> tensors) {
  const ReduceFunction reduce = FindReduce("ReduceScatter", dtype);
  const size_t element = ByteSize(dtype), ranks = static_cast<size_t>(size());
  const size_t most = ReducedAtOnce() / element, count = CountOf(tensors);
  std::vector<std::byte> sent, received, sum;
  for (size_t begin = 0; begin < count; begin += most) {
    const size_t n = std::min(most, count - begin), bytes = n * element;
    sent.resize(ranks * bytes);
    received.resize(ranks * bytes);
    sum.resize(bytes);
    ForEachPiece(tensors, begin, n, [&](const Piece& p) {
      for (size_t r = 0; r < ranks; ++r) {
        const size_t from = r * p.tensor->count + p.begin;
        std::memcpy(sent.data() + r * bytes + p.at * element,
                    At(p.tensor->x, from * element), p.count * element);
      }
    });
    Exchange(sent.data(), received.data(), bytes);
    reduce(Reduction::kSum, received.data(), sum.data(), ranks, n);
    ForEachPiece(tensors, begin, n, [&](const Piece& p) {
      std::memcpy(At(p.tensor->y, p.begin * element),
                  sum.data() + p.at * element, p.count * element);
    });
    wire_bytes_->reduce_scatter +=
        Received("ReduceScatter", n * ranks, element);
  }
}

void Communicator::Broadcast(void* data, size_t bytes, int root) {
  auto* at = static_cast<std::byte*>(data);
  for (size_t begin = 0; begin < bytes; begin += message_bytes_) {
    Send(at + begin, std::min(message_bytes_, bytes - begin), root);
  }
  if (rank() != root) wire_bytes_->broadcast += Received("Broadcast", bytes, 1);
}

void Communicator::AddWireBytes(const WireBytes& bytes) {
  wire_bytes_->all_reduce += bytes.all_reduce;
  wire_bytes_->all_gather += bytes.all_gather;
  wire_bytes_->reduce_scatter += bytes.reduce_scatter;
  wire_bytes_->broadcast += bytes.broadcast;
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
