// SPDX-License-Identifier: Apache-2.0
//
// The bodies call the producer and the quantizer, so they have their bits.
#include "graph/schemas/fused_quantize.h"

#include <algorithm>

#include "base/check.h"
#include "base/joined.h"
#include "graph/infer_shapes.h"
#include "graph/schemas/infer.h"
#include "graph/schemas/quantize.h"
#include "graph/schemas/quantize_padded.h"

namespace onnx_fp8 {
namespace {

// y = x Φ(x)
constexpr char kGelu[] = R"(
  half = Constant <value_float = 0.5> ()
  one = Constant <value_float = 1.0> ()
  root_half = Constant <value_float = 0.7071067811865476> ()
  z = Mul (x, root_half)
  erf = Erf (z)
  erf_1 = Add (erf, one)
  cdf = Mul (erf_1, half)
  y = Mul (x, cdf)
)";

// y = x (1 + tanh(√(2/π) (x + 0.044715 x³)))/2
constexpr char kGeluTanh[] = R"(
  half = Constant <value_float = 0.5> ()
  one = Constant <value_float = 1.0> ()
  root = Constant <value_float = 0.7978845608028654> ()
  cubic = Constant <value_float = 0.044715> ()
  xx = Mul (x, x)
  kxx = Mul (xx, cubic)
  kxx_1 = Add (kxx, one)
  rx = Mul (x, root)
  u = Mul (rx, kxx_1)
  t = Tanh (u)
  t_1 = Add (t, one)
  share = Mul (t_1, half)
  y = Mul (x, share)
)";

using Names = std::vector<std::string>;

// One row for each producer.
std::vector<FusedQuantizer> ProducerRows() {
  const std::vector<AttributeDefinition> axis = {{"axis", AttributeKind::kInt}},
                                         norm = {{"axis", AttributeKind::kInt},
                                                 {"epsilon",
                                                  AttributeKind::kFloat}};
  const Names dy_x = {"dy", "x"}, dx_dbias = {"dx", "dbias"};
  return {
      {"Relu", "", "ReluQuantize", {"x"}, {"y"}, {0}},
      {"Gelu", "", "GeluQuantize", {"x"}, {"y"}, {0}, {}, kGelu, "none"},
      {"Gelu",
       "",
       "GeluTanhQuantize",
       {"x"},
       {"y"},
       {0},
       {},
       kGeluTanh,
       "tanh"},
      {"Silu", kDomain, "", {"x"}, {"y"}, {0}},
      {"SwiGLU", kDomain, "", {"x", "gate"}, {"y"}, {0}},
      {"GeluGrad", kDomain, "", dy_x, {"dx"}, {0}},
      {"GeluTanhGrad", kDomain, "", dy_x, {"dx"}, {0}},
      {"SiluGrad", kDomain, "", dy_x, {"dx"}, {0}},
      {"GeluBiasGrad", kDomain, "", dy_x, dx_dbias, {0}},
      {"GeluTanhBiasGrad", kDomain, "", dy_x, dx_dbias, {0}},
      {"SiluBiasGrad", kDomain, "", dy_x, dx_dbias, {0}},
      {"SwiGLUGrad", kDomain, "", {"dy", "x", "gate"}, {"dx", "dgate"}, {0, 1}},
      {"LayerNormalization",
       "",
       "LayerNormalizationQuantize",
       {"x", "scale", "bias"},
       {"y", "mean", "inv_std"},
       {0},
       norm},
      {"RMSNorm", kDomain, "", {"x", "scale"}, {"y"}, {0}, norm},
      {"AddLayerNorm",
       kDomain,
       "",
       {"a", "b", "scale", "bias"},
       {"x", "y", "mean", "inv_std"},
       {1},
       norm},
      {"AddRMSNorm", kDomain, "", {"a", "b", "scale"}, {"x", "y"}, {1}, norm},
      {"LayerNormGrad",
       kDomain,
       "",
       {"dy", "x", "scale", "mean", "inv_std"},
       {"dx", "dscale", "dbias"},
       {0},
       axis},
      {"RMSNormGrad",
       kDomain,
       "",
       {"dy", "x", "scale"},
       {"dx", "dscale"},
       {0},
       norm},
      {"AddLayerNormGrad",
       kDomain,
       "",
       {"dsum", "dy", "x", "scale", "mean", "inv_std"},
       {"dx", "dscale", "dbias"},
       {0},
       axis},
      {"AddRMSNormGrad",
       kDomain,
       "",
       {"dsum", "dy", "x", "scale"},
       {"dx", "dscale"},
       {0},
       norm},
  };
}

// The producers' rows, and their forms that pad or that quantize rows.
std::vector<FusedQuantizer> MakeTable() {
  std::vector<FusedQuantizer> table = ProducerRows();
  for (FusedQuantizer& row : table) {
    if (row.op.empty()) row.op = row.producer + "Quantize";
  }
  for (FusedQuantizer row : std::vector(table)) {
    row.op += "Padded";
    row.padded = true;
    table.push_back(row);
  }
  for (const char* producer :
       {"LayerNormalization", "RMSNorm", "AddLayerNorm", "AddRMSNorm",
        "LayerNormGrad", "RMSNormGrad", "AddLayerNormGrad", "AddRMSNormGrad"}) {
    FusedQuantizer row =
        *std::ranges::find(table, producer, &FusedQuantizer::producer);
    row.op = row.producer + "QuantizeRows";
    row.by_rows = true;
    table.push_back(row);
  }
  return table;
}

// The name of a result of quantizer i, from its name in the first quantizer:
// "q", "q_2".
std::string Numbered(const std::string& name, size_t i) {
  return i == 0 ? name : name + "_" + std::to_string(i + 1);
}

Names CodesOf(size_t i) {
  return {Numbered("q", i), Numbered("q_scale", i), Numbered("amax", i),
          Numbered("q_transposed", i)};
}

// A node of the producer.
std::string ProducerText(const FusedQuantizer& row) {
  if (!row.text.empty()) return row.text;
  Names attributes;
  for (const AttributeDefinition& a : row.attributes) {
    const char* kind =
        a.kind == AttributeKind::kInt ? ": int = @" : ": float = @";
    attributes.push_back(a.name + std::string(kind) + a.name);
  }
  std::string domain = row.domain.empty() ? "" : row.domain + ".";
  std::string given = attributes.empty() ? "" : "<" + Joined(attributes) + "> ";
  return Concat("\n  ", Joined(row.results), " = ", domain, row.producer, " ",
                given, "(", Joined(row.operands), ")\n");
}

// y_rounded, of result y of the producer.
std::string RoundingText(const std::string& y) {
  return Concat("  ", y, "_narrow = Cast <to: int = @round_to> (", y, ")\n",
                "  ", y, "_rounded = CastLike (", y, "_narrow, ", y, ")\n");
}

// Quantizer i, of y_rounded.
std::string QuantizerText(const std::string& y, size_t i, bool padded) {
  Names made = CodesOf(i);
  std::string scale_in = Numbered("scale_in", i);
  if (padded) {
    return Concat("  ", Joined(made), " = ", kDomain,
                  ".QuantizeWithPadded <to: int = @to, q_max: float = @q_max> "
                  "(",
                  y, "_rounded, ", scale_in, ")\n");
  }
  return Concat("  ", Joined(made), ", ", Numbered("column_sums", i), " = ",
                kDomain,
                ".QuantizeWithTranspose <to: int = @to, q_max: float = @q_max> "
                "(",
                y, "_rounded, ", scale_in, ")\n");
}

// The quantizer of the rows of y_rounded.
std::string RowQuantizerText(const std::string& y) {
  return Concat("  q, q_scale, amax = ", kDomain,
                ".QuantizeBlock <to: int = @to, q_max: float = @q_max, "
                "block_rows = 1, block_columns = 0, pow2: int = @pow2, "
                "scale_to: int = @scale_to> (",
                y, "_rounded)\n");
}

std::string BodyText(const FusedQuantizer& row) {
  Names in = row.operands, out = row.results;
  std::string text = ProducerText(row);
  for (size_t i = 0; i < row.quantized.size(); ++i) {
    const std::string& y = row.results[row.quantized[i]];
    Names made = CodesOf(i);
    text += RoundingText(y);
    if (row.by_rows) {
      made.pop_back();
      text += RowQuantizerText(y);
    } else {
      in.push_back(Numbered("scale_in", i));
      text += QuantizerText(y, i, row.padded);
    }
    out.insert(out.end(), made.begin(), made.end());
  }
  return Concat("(", Joined(in), ") => (", Joined(out), ") {", text, "}");
}

// The producer of the node's results, with the same operands.
Node* ProducerIn(Graph& scratch, const FusedQuantizer& row, const Node& node) {
  std::vector<Value*> inputs;
  for (size_t i = 0; i < row.operands.size(); ++i) {
    const Value* x = node.in(i);
    Check(x != nullptr, "[", node.Where(), "] expected ", row.Operands(),
          " inputs, got less");
    inputs.push_back(
        scratch.AddInput("in" + std::to_string(i), x->dtype, x->shape));
  }
  Node* producer =
      scratch.AddNode(row.producer, inputs, row.results, {}, row.domain);
  producer->name = node.name;
  for (const AttributeDefinition& a : row.attributes) {
    auto given = node.attributes.find(a.name);
    if (given != node.attributes.end()) producer->attributes.insert(*given);
  }
  InferNode(*producer, scratch.opset);
  return producer;
}

// What QuantizeBlock makes of y.
void InferRowQuantizer(Graph& scratch, const FusedQuantizer& row, Value* y,
                       Node& node) {
  Attributes attributes = {{"block_rows", int64_t{1}},
                           {"block_columns", int64_t{0}}};
  for (const char* name : {"to", "q_max", "pow2", "scale_to"}) {
    auto given = node.attributes.find(name);
    if (given != node.attributes.end()) attributes.insert(*given);
  }
  Node* quantizer = scratch.AddNode(
      "QuantizeBlock", {y}, {"q", "q_scale", "amax"}, attributes, kDomain);
  quantizer->name = node.name;
  InferNode(*quantizer, scratch.opset);
  for (size_t i = 0; i < quantizer->outputs().size(); ++i) {
    Value* made = node.out(row.Codes(0) + i);
    if (made) SameAs(quantizer->out(i), made);
  }
}

void InferFusedQuantizer(Node& node) {
  const FusedQuantizer& row = *FindFusedQuantizer(node.op);
  Graph scratch;
  const Node& producer = *ProducerIn(scratch, row, node);
  for (size_t i = 0; i < row.results.size(); ++i) {
    if (node.out(i)) SameAs(producer.out(i), node.out(i));
  }
  if (row.by_rows) {
    Value* y = producer.out(row.quantized[0]);
    return InferRowQuantizer(scratch, row, y, node);
  }
  DType to = Float8Target(node);
  for (size_t i = 0; i < row.quantized.size(); ++i) {
    CheckScalar(node, row.ScaleIn(i), DType::kFloat);
    const std::optional<Shape>& shape = producer.out(row.quantized[i])->shape;
    size_t q = row.Codes(i);
    SetOutput(node, q, to, shape);
    SetOutput(node, q + 1, DType::kFloat, Shape{});
    SetOutput(node, q + 2, DType::kFloat, Shape{});
    if (!shape || (!row.padded && !node.out(q + 3))) continue;
    Check(!shape->empty(), "[", node.Where(),
          "] expected rows of codes, got a scalar");
    Shape matrix = {Rows(*shape), shape->back()};
    if (row.padded) {
      matrix = {PaddedSize(matrix[0]), PaddedSize(matrix[1])};
      SetOutput(node, q, to, matrix);
    }
    SetOutput(node, q + 3, to, Shape{matrix[1], matrix[0]});
  }
}

}  // namespace

std::span<const FusedQuantizer> FusedQuantizers() {
  static const std::vector<FusedQuantizer> table = MakeTable();
  return table;
}

const FusedQuantizer* FindFusedQuantizer(std::string_view op) {
  auto rows = FusedQuantizers();
  auto row = std::ranges::find(rows, op, &FusedQuantizer::op);
  return row == rows.end() ? nullptr : &*row;
}

std::vector<OpDefinition> FusedQuantizeOps() {
  static const std::vector<std::string> bodies = [] {
    std::vector<std::string> texts;
    for (const FusedQuantizer& row : FusedQuantizers()) {
      texts.push_back(BodyText(row));
    }
    return texts;
  }();
  std::vector<OpDefinition> ops;
  for (size_t i = 0; i < bodies.size(); ++i) {
    const FusedQuantizer& row = FusedQuantizers()[i];
    std::vector<AttributeDefinition> attributes = row.attributes;
    attributes.push_back({"round_to", AttributeKind::kInt});
    attributes.push_back({"to", AttributeKind::kInt});
    attributes.push_back({"q_max", AttributeKind::kFloat});
    if (row.by_rows) {
      attributes.push_back({"pow2", AttributeKind::kInt});
      attributes.push_back({"scale_to", AttributeKind::kInt});
    }
    ops.push_back({row.op.c_str(), attributes, bodies[i].c_str(),
                   InferFusedQuantizer, LateOp(OpKind::kOther)});
  }
  return ops;
}

}  // namespace onnx_fp8
