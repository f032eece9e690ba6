// SPDX-License-Identifier: Apache-2.0
#include "training/state/tensor_checksum.h"

#include <algorithm>
#include <vector>

#include "base/file.h"
#include "base/mapped_file.h"
#include "base/parallel.h"

namespace onnx_fp8 {

std::string Checksum(const Tensor& tensor) {
  constexpr int64_t kPart = int64_t{1} << 20;
  auto bytes = static_cast<int64_t>(tensor.bytes());
  std::vector<uint32_t> parts(static_cast<size_t>((bytes + kPart - 1) / kPart));
  auto length = [&](int64_t part) {
    return std::min(kPart, bytes - part * kPart);
  };
  ParallelFor(std::ssize(parts), 1, [&](int64_t begin, int64_t end) {
    auto* data = static_cast<const std::byte*>(tensor.raw());
    std::vector<std::byte> part(static_cast<size_t>(std::min(kPart, bytes)));
    for (int64_t i = begin; i < end; ++i) {
      const auto size = static_cast<size_t>(length(i));
      CopyMapped(data + i * kPart, size, part.data());
      parts[static_cast<size_t>(i)] = Crc32(part.data(), size);
    }
  });
  uint32_t sum = 0;  // checksum of no bytes
  for (int64_t i = 0; i < std::ssize(parts); ++i) {
    sum = CombineCrc32(sum, parts[static_cast<size_t>(i)],
                       static_cast<size_t>(length(i)));
  }
  return Hex(sum);
}

}  // namespace onnx_fp8
