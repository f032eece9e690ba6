// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/sizes.h"

#include <charconv>
#include <set>

#include "base/check.h"
#include "onnx_fp8/option_error.h"
#include "onnx_fp8/option_names.h"

namespace onnx_fp8 {

std::string SizeText(const ProductSize& size) {
  return Concat("M ", size.m, ", K ", size.k, ", N ", size.n);
}

std::optional<std::pair<ProductSize, std::string>> ReadProductSize(
    const std::string& text) {
  ProductSize product;
  const char* at = text.data();
  const char* end = at + text.size();
  for (int64_t* size : {&product.m, &product.k, &product.n}) {
    auto [rest, error] = std::from_chars(at, end, *size);
    if (error != std::errc() || *size < 1 || *size > kLargestSize) return {};
    at = rest;
    if (size == &product.n) break;
    if (at == end || *at++ != ',') return {};
  }
  return std::pair{product, std::string(at, end)};
}

std::vector<int64_t> ParseSizes(const std::string& option,
                                const std::vector<std::string>& words,
                                int64_t largest) {
  std::set<int64_t> sizes;
  for (const std::string& word : words) {
    int64_t size = 0;
    const char* end = word.data() + word.size();
    auto [stop, error] = std::from_chars(word.data(), end, size);
    if (error != std::errc() || stop != end || size < 1 || size > largest) {
      throw OptionError(Concat(Reference(option),
                               ": expected numbers from 1 to ", largest,
                               ", got \"", word, "\""));
    }
    sizes.insert(size);
  }
  if (sizes.empty()) {
    throw OptionError(Concat(Reference(option), ": expected numbers from 1 to ",
                             largest, ", got none"));
  }
  return {sizes.begin(), sizes.end()};
}

std::vector<ProductSize> GridOf(const std::vector<int64_t>& sizes) {
  std::vector<ProductSize> grid;
  for (int64_t m : sizes) {
    for (int64_t k : sizes) {
      for (int64_t n : sizes) grid.push_back({m, k, n});
    }
  }
  return grid;
}

}  // namespace onnx_fp8
