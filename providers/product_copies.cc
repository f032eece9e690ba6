// SPDX-License-Identifier: Apache-2.0
#include "providers/product_copies.h"

#include "base/check.h"
#include "providers/divide_up.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kSizeUnit = 16;  // of sizes that a GPU multiplies

// A matrix as it lies in memory: all axes but the last are joined.
struct Lying {
  int64_t rows, columns;
};

Lying LyingOf(const Value& codes) {
  int64_t columns = codes.dim(codes.rank() - 1);
  return {columns > 0 ? NumElements(*codes.shape) / columns : 0, columns};
}

void AddPart(std::string* text, const std::string& part) {
  *text += (text->empty() ? "" : ", ") + part;
}

void AddPadding(std::string* text, const char* name, int64_t size) {
  if (size % kSizeUnit == 0) return;
  AddPart(text, Concat(name, " ", size, " to ", RoundUp(size, kSizeUnit)));
}

}  // namespace

std::string ProductCopies(const Node& node) {
  if (!node.IsOurs("ScaledMatMul") && !node.IsOurs("ScaledMatMulBias") &&
      !node.IsOurs("ScaledMatMulBlock") &&
      !node.IsOurs("ScaledMatMulBlockBias")) {
    return "";
  }
  bool turns_a = node.Int("transA", 0) != 0,
       turns_b = node.Int("transB", 0) == 0;
  Lying a = LyingOf(*node.in(0)), b = LyingOf(*node.in(2));
  std::string text;
  if (turns_a) AddPart(&text, "a turned");
  if (turns_b) AddPart(&text, "b turned");
  AddPadding(&text, "m", turns_a ? a.columns : a.rows);
  AddPadding(&text, "k", turns_a ? a.rows : a.columns);
  AddPadding(&text, "n", turns_b ? b.columns : b.rows);
  return text;
}

}  // namespace onnx_fp8
