// SPDX-License-Identifier: Apache-2.0
//
// FP8 products that are added to a matrix: y = c + product. A provider's pass
// makes these ops (providers/passes/add_to_sums.h). The bodies call the plain
// forms.
#include "base/check.h"
#include "base/joined.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"
#include "graph/schemas/quantize.h"

namespace onnx_fp8 {
namespace {

constexpr char kSuffix[] = "Add";
constexpr size_t kAddend = 4;  // operand

std::string BodyText(const std::string& product,
                     const std::vector<AttributeDefinition>& attributes) {
  std::vector<std::string> passed;
  for (const AttributeDefinition& a : attributes) {
    const char* kind = a.kind == AttributeKind::kInts ? "ints" : "int";
    passed.push_back(Concat(a.name, ": ", kind, " = @", a.name));
  }
  return Concat("(a_q, a_scale, b_q, b_scale, c) => (y) {\n  product = ",
                kDomain, ".", product, " <", Joined(passed),
                "> (a_q, a_scale, b_q, b_scale)\n  y = Add (c, product)\n}");
}

void InferSum(Node& node) {
  const std::string product =
      node.op.substr(0, node.op.size() - std::string_view(kSuffix).size());
  FindOp(product)->infer(node);
  const Value &c = Operand(node, kAddend, DType::kFloat), &y = *node.out(0);
  Check(!c.concrete() || !y.concrete() || *c.shape == *y.shape, "[",
        node.Where(), "] expected input ", kAddend, " of the product's shape ",
        y.shape ? ToString(*y.shape) : std::string(), ", got ",
        c.shape ? ToString(*c.shape) : std::string());
}

}  // namespace

std::vector<OpDefinition> ProductSumOps() {
  constexpr auto kInt = AttributeKind::kInt;
  struct Row {
    std::string product, op, body;
    std::vector<AttributeDefinition> attributes;
  };
  static const std::vector<Row> rows = [] {
    const AttributeDefinition a = {"transA", kInt}, b = {"transB", kInt};
    std::vector<Row> table = {
        {"ScaledMatMul", "", "", {a, b}},
        {"ScaledMatMulPadded", "", "", {{"shape", AttributeKind::kInts}}},
        {"ScaledMatMulBlock",
         "",
         "",
         {a,
          b,
          {"a_block_rows", kInt},
          {"a_block_columns", kInt},
          {"b_block_rows", kInt},
          {"b_block_columns", kInt}}}};
    for (Row& row : table) {
      row.op = row.product + kSuffix;
      row.body = BodyText(row.product, row.attributes);
    }
    return table;
  }();
  std::vector<OpDefinition> ops;
  for (const Row& row : rows) {
    ops.push_back({row.op.c_str(), row.attributes, row.body.c_str(), InferSum,
                   LateOp(OpKind::kScaledProduct, {.flops = ProductFlops})});
  }
  return ops;
}

}  // namespace onnx_fp8
