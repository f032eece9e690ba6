// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "cli/bench/node_cases.h"
#include "onnx_fp8/recipe.h"

namespace onnx_fp8 {
namespace {

// y (M,N) = x (M,K) w^T, where w is (N,K).
struct Layer {
  const char* name;
  int64_t m, k, n;
};

struct LayerProduct {
  const char* role;
  Use a, b;  // whose copies the product multiplies
  bool fast;
  bool trans_a, trans_b;   // of operands as a step keeps them
  Shape a_shape, b_shape;  // as a step keeps them
  int64_t m, k, n;         // of the product itself
};

// The three products of a layer. Named recipes have short sums in the forward
// only.
std::vector<LayerProduct> ProductsOf(const Layer& l, const Recipe& recipe) {
  Shape x = {l.m, l.k}, w = {l.n, l.k}, dy = {l.m, l.n};
  return {
      {"forward", Use::kInput, Use::kWeight, recipe.fast_accum_forward, false,
       true, x, w, l.m, l.k, l.n},
      {"dgrad", Use::kGradOutput, Use::kWeightForDgrad, false, false, false, dy,
       w, l.m, l.n, l.k},
      {"wgrad", Use::kGradOutputForWgrad, Use::kInputForWgrad, false, true,
       false, dy, x, l.n, l.m, l.k},
  };
}

struct Blocks {
  int64_t rows, columns;  // of a block with one scale; 0: the whole axis
};

// As graph/fp8/fp8_rewrite.cc chooses them.
Blocks BlocksOf(const OperandRecipe& how, bool along_columns) {
  if (how.granularity == Granularity::kTensor) return {0, 0};
  int64_t along = how.granularity == Granularity::kRow ? 0 : how.block;
  int64_t across = how.square ? how.block : 1;
  return along_columns ? Blocks{across, along} : Blocks{along, across};
}

int64_t CountOf(int64_t size, int64_t block) {
  return block == 0 ? 1 : (size + block - 1) / block;
}

NodeOperand ScalesOf(const Shape& shape, Blocks blocks) {
  return {.shape = {CountOf(shape[0], blocks.rows),
                    CountOf(shape[1], blocks.columns)},
          .fill = NodeOperand::kValue,
          .value = 1.0 / 64};
}

NodeCase Unquantized(const LayerProduct& p) {
  return {.op = "Gemm",
          .operands = {{p.a_shape}, {p.b_shape}},
          .attributes = {{"transA", int64_t{p.trans_a}},
                         {"transB", int64_t{p.trans_b}}}};
}

// With one scale for each operand, whose rows lie along the sum: quantizers
// write both orientations.
NodeCase WithOneScale(const LayerProduct& p, DType a, DType b) {
  NodeOperand scale = {
      .shape = {}, .fill = NodeOperand::kValue, .value = 1.0 / 64};
  return {.op = "ScaledMatMul",
          .domain = kDomain,
          .operands = {{.shape = {p.m, p.k}, .dtype = a},
                       scale,
                       {.shape = {p.n, p.k}, .dtype = b},
                       scale},
          .attributes = {{"transA", int64_t{0}}, {"transB", int64_t{1}}}};
}

// With scales of blocks. Quantizers write the transpose of an operand whose
// columns have scales; one of square blocks lies as the model has it.
NodeCase WithBlocks(const LayerProduct& p, const OperandRecipe& a,
                    const OperandRecipe& b) {
  bool turns_a = p.trans_a && a.square, turns_b = !p.trans_b && b.square;
  Shape a_shape = turns_a ? p.a_shape : Shape{p.m, p.k};
  Shape b_shape = turns_b ? p.b_shape : Shape{p.n, p.k};
  Blocks of_a = BlocksOf(a, !turns_a), of_b = BlocksOf(b, !turns_b);
  return {.op = "ScaledMatMulBlock",
          .domain = kDomain,
          .operands = {{.shape = a_shape, .dtype = a.dtype},
                       ScalesOf(a_shape, of_a),
                       {.shape = b_shape, .dtype = b.dtype},
                       ScalesOf(b_shape, of_b)},
          .attributes = {{"transA", int64_t{turns_a}},
                         {"transB", int64_t{!turns_b}},
                         {"a_block_rows", of_a.rows},
                         {"a_block_columns", of_a.columns},
                         {"b_block_rows", of_b.rows},
                         {"b_block_columns", of_b.columns}}};
}

NodeCase CaseOf(const LayerProduct& p, const Recipe& recipe) {
  const OperandRecipe &a = recipe[p.a], &b = recipe[p.b];
  if (a.high_precision || b.high_precision) return Unquantized(p);
  bool one = a.granularity == Granularity::kTensor &&
             b.granularity == Granularity::kTensor;
  NodeCase node = one ? WithOneScale(p, a.dtype, b.dtype) : WithBlocks(p, a, b);
  if (p.fast) node.attributes["fast_accum"] = int64_t{1};
  return node;
}

}  // namespace

std::vector<NodeCase> ProductCases(const NodeSizes& sizes) {
  int64_t m = sizes.tokens, width = sizes.width();
  const Layer layers[] = {{"qkv", m, width, sizes.qkv()},
                          {"out", m, width, width},
                          {"gate, up", m, width, sizes.hidden},
                          {"down", m, sizes.hidden, width}};
  std::vector<NodeCase> cases;
  for (const char* name : {"off", "tensorwise", "rowwise", "blockwise"}) {
    Recipe recipe = PresetRecipe(name);
    for (const Layer& layer : layers) {
      for (const LayerProduct& p : ProductsOf(layer, recipe)) {
        NodeCase node = CaseOf(p, recipe);
        node.group = "products";
        node.what = Concat(layer.name, " ", p.role, ", ", name);
        node.shape = Concat(p.m, "x", p.k, "x", p.n);
        cases.push_back(node);
      }
    }
  }
  return cases;
}

}  // namespace onnx_fp8
