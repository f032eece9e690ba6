// SPDX-License-Identifier: Apache-2.0
#include "data/token_file.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/mapped_file.h"

namespace onnx_fp8 {
namespace {

static_assert(std::endian::native == std::endian::little);

// Calls fn with a pointer to the tokens, in their C++ type.
template <typename Fn>
auto WithTokens(const Tensor& tokens, Fn fn) {
  if (tokens.dtype() == DType::kUInt16) return fn(tokens.data<uint16_t>());
  return fn(tokens.data<uint32_t>());
}

}  // namespace

Tensor ReadTokens(const std::string& path, DType dtype) {
  Check(dtype == DType::kUInt16 || dtype == DType::kUInt32, "[", path,
        "] expected token type uint16 or uint32, got ", Name(dtype));
  MappedFile file = MapFile(path);
  size_t width = ByteSize(dtype);
  Check(file.size > 0 && file.size % width == 0, "[", path, "] expected ",
        Name(dtype), " tokens, got a file of ", file.size, " bytes");
  return Tensor::View(dtype, {static_cast<int64_t>(file.size / width)},
                      file.owner, file.data);
}

int64_t NumWindows(const Tensor& tokens, int64_t seq_len) {
  return (tokens.size() - 1) / seq_len;
}

void CopyWindow(const Tensor& tokens, int64_t seq_len, int64_t i,
                int64_t* inputs, int64_t* labels) {
  WithTokens(tokens, [&](const auto* all) {
    const auto* window = all + i * seq_len;
    std::copy(window, window + seq_len, inputs);
    std::copy(window + 1, window + 1 + seq_len, labels);
  });
}

void MarkDocuments(const int64_t* tokens, int64_t n, int64_t eod,
                   int64_t ignored, int64_t* numbers, int64_t* places,
                   int64_t* labels) {
  int64_t number = 0, place = 0;
  for (int64_t i = 0; i < n; ++i) {
    numbers[i] = number;
    places[i] = place++;
    if (tokens[i] != eod) continue;
    labels[i] = ignored;
    ++number;
    place = 0;
  }
}

}  // namespace onnx_fp8
