// SPDX-License-Identifier: Apache-2.0
//
// Sizes of products as users type them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace onnx_fp8 {

// y (M,N) = x (M,K) w (K,N).
struct ProductSize {
  int64_t m = 0, k = 0, n = 0;

  double operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(k) *
           static_cast<double>(n);
  }
};

// "M 512, K 8192, N 1280".
std::string SizeText(const ProductSize& size);

inline constexpr int64_t kLargestSize = 1 << 20;

// Three sizes "M,K,N" from 1 to kLargestSize, and the text that follows them.
std::optional<std::pair<ProductSize, std::string>> ReadProductSize(
    const std::string& text);

// Numbers from 1 to `largest`, ascending, each once. Errors: OptionError that
// names the option.
std::vector<int64_t> ParseSizes(const std::string& option,
                                const std::vector<std::string>& words,
                                int64_t largest = 1 << 14);

// All M, K and N of `sizes`, N fastest.
std::vector<ProductSize> GridOf(const std::vector<int64_t>& sizes);

}  // namespace onnx_fp8
