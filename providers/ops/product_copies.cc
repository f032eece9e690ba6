// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/product_copies.h"

#include <algorithm>

#include "base/check.h"
#include "graph/op_facts.h"
#include "graph/schemas/fused_quantize.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8 {
namespace {

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
  if (size % kFp8Unit == 0) return;
  AddPart(text, Concat(name, " ", size, " to ", PaddedSize(size)));
}

// Whether they are transposed codes of their quantizer.
bool IsTransposed(const Node& quantizer, const Value& codes) {
  const FusedQuantizer* row = FindFusedQuantizer(quantizer.op);
  size_t count = row ? row->quantized.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    size_t first = row ? row->Codes(i) : 0;
    if (quantizer.out(first + kTransposedCodes) == &codes) return true;
  }
  return false;
}

// K of a product, read from one operand: without the zeros that its quantizer
// adds.
int64_t TrueK(const Value& codes) {
  const Node* quantizer = codes.producer;
  if (!quantizer || !quantizer->op.ends_with("Padded")) return codes.dim(-1);
  Lying x = LyingOf(*quantizer->in(0));
  return IsTransposed(*quantizer, codes) ? x.rows : x.columns;
}

std::string PaddedByQuantizers(const Node& product) {
  Shape y = product.Ints("shape");
  std::string text;
  AddPadding(&text, "m", NumElements(y) / std::max<int64_t>(y.back(), 1));
  AddPadding(&text, "k",
             std::min(TrueK(*product.in(0)), TrueK(*product.in(2))));
  AddPadding(&text, "n", y.back());
  return text + " by the quantizers";
}

// Scales of the MX formats: one for 32 elements of k.
bool HasMxBlocks(const Node& product) {
  const char* a = IsKMajor(product, 0) ? "a_block_columns" : "a_block_rows";
  const char* b = IsKMajor(product, 2) ? "b_block_columns" : "b_block_rows";
  return product.Int(a, 0) == 32 && product.Int(b, 0) == 32;
}

}  // namespace

std::string ProductCopies(const Node& node) {
  if (FactsOf(node).kind != OpKind::kScaledProduct) return "";
  // Only products of padded operands say the shape of their result.
  if (node.Has("shape")) return PaddedByQuantizers(node);
  bool turns_a = !IsKMajor(node, 0), turns_b = !IsKMajor(node, 2);
  Lying a = LyingOf(*node.in(0)), b = LyingOf(*node.in(2));
  std::string text;
  if (turns_a) AddPart(&text, "a turned");
  if (turns_b) AddPart(&text, "b turned");
  AddPadding(&text, "m", turns_a ? a.columns : a.rows);
  AddPadding(&text, "k", turns_a ? a.rows : a.columns);
  AddPadding(&text, "n", turns_b ? b.columns : b.rows);
  if (HasMxBlocks(node)) {
    bool bytes =
        node.in(1)->dtype == DType::kE8M0 && node.in(3)->dtype == DType::kE8M0;
    AddPart(&text,
            Concat("decoded",
                   bytes ? ", except on Blackwell" : ": no powers of two",
                   "; Hopper's nearest recipe is blockwise"));
  }
  return text;
}

}  // namespace onnx_fp8
