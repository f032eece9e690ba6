// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/node_cases.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "cli/bench/causal_attention.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

constexpr auto kValue = NodeOperand::kValue;
constexpr auto kIndices = NodeOperand::kIndices;

NodeOperand Filled(const Shape& shape, double value,
                   DType dtype = DType::kFloat) {
  return {.shape = shape, .fill = kValue, .dtype = dtype, .value = value};
}

NodeOperand Indices(int64_t count, int64_t below) {
  return {.shape = {count},
          .fill = kIndices,
          .dtype = DType::kInt64,
          .value = static_cast<double>(below)};
}

class Cases {
 public:
  void Begin(const std::string& group) { group_ = group; }

  void Add(const std::string& what, const std::string& op,
           std::vector<NodeOperand> operands, size_t results = 1,
           Attributes attributes = {}, const std::string& domain = kDomain) {
    list_.push_back({group_, what, op, domain, std::move(operands), results,
                     std::move(attributes)});
  }

  void Add(NodeCase node) { list_.push_back(std::move(node)); }

  // Sets the last case's shape, for people.
  void SetShape(const std::string& shape) { list_.back().shape = shape; }

  std::vector<NodeCase> Take() { return std::move(list_); }

 private:
  std::string group_;
  std::vector<NodeCase> list_;
};

void AddQuantizers(Cases& c, const NodeSizes& s) {
  c.Begin("casts");
  NodeOperand x = {{s.tokens, s.width()}};
  NodeOperand given = Filled({}, 1.0 / 64);
  const Attributes to = {{"to", static_cast<int64_t>(DType::kE4M3)},
                         {"q_max", Float8Max(DType::kE4M3)}};
  c.Add("dynamic scale", "QuantizeTensor", {x}, 3, to);
  c.Add("dynamic scale, both orientations", "QuantizeTensorTranspose", {x}, 4,
        to);
  c.Add("dynamic scale, both orientations, sums of columns",
        "QuantizeTensorTranspose", {x}, 5, to);
  c.Add("given scale", "QuantizeWith", {x, given}, 3, to);
  c.Add("given scale, both orientations", "QuantizeWithTranspose", {x, given},
        4, to);
  struct Blocks {
    const char* what;
    int64_t rows, columns;
  };
  for (const Blocks& b : {Blocks{"a scale for each row", 1, 0},
                          {"a scale for each column", 0, 1},
                          {"blocks of 1 x 128", 1, 128},
                          {"blocks of 128 x 1", 128, 1},
                          {"blocks of 128 x 128", 128, 128}}) {
    Attributes more = to;
    more.insert({{"block_rows", b.rows},
                 {"block_columns", b.columns},
                 {"pow2", int64_t{0}},
                 {"scale_to", static_cast<int64_t>(DType::kFloat)}});
    c.Add(b.what, "QuantizeBlock", {x}, 3, more);
    if (b.columns != 1) continue;
    std::swap(more["block_rows"], more["block_columns"]);
    c.Add(Concat(b.what, ", transposed"), "QuantizeColumns", {x}, 3, more);
    c.Add(Concat(b.what, ", transposed, sums of columns"), "QuantizeColumns",
          {x}, 4, more);
  }
  for (int64_t block : {0, 128, 32}) {
    Attributes more = to;
    more.insert({{"block_rows", int64_t{1}},
                 {"block_columns", block},
                 {"pow2", int64_t{block == 32}},
                 {"scale_to", static_cast<int64_t>(DType::kFloat)}});
    std::string what = block == 0 ? "a scale for each row and column"
                                  : Concat("blocks of 1 x ", block);
    c.Add(Concat(what, ", both orientations"), "QuantizeBlockTranspose", {x}, 5,
          more);
  }
}

void AddNorms(Cases& c, const NodeSizes& s) {
  c.Begin("norms");
  NodeOperand x = {{s.tokens, s.width()}};
  NodeOperand scale = {{s.width()}};
  NodeOperand mean = {{s.tokens, 1}}, inv_std = Filled({s.tokens, 1}, 1);
  const Attributes axis = {{"axis", int64_t{-1}}};
  Attributes norm = axis;
  norm["epsilon"] = 1e-5f;
  c.Add("", "RMSNorm", {x, scale}, 1, norm);
  c.Add("", "AddRMSNorm", {x, x, scale}, 2, norm);
  c.Add("", "RMSNormGrad", {x, x, scale}, 2, norm);
  c.Add("", "AddRMSNormGrad", {x, x, x, scale}, 2, norm);
  c.Add("", "LayerNormalization", {x, scale, scale}, 3, norm, "");
  c.Add("", "AddLayerNorm", {x, x, scale, scale}, 4, norm);
  c.Add("", "LayerNormGrad", {x, x, scale, mean, inv_std}, 3, axis);
  c.Add("", "AddLayerNormGrad", {x, x, x, scale, mean, inv_std}, 3, axis);
}

void AddActivations(Cases& c, const NodeSizes& s) {
  c.Begin("activations");
  NodeOperand x = {{s.tokens, s.hidden}};
  c.Add("", "SwiGLU", {x, x});
  c.Add("", "SwiGLUGrad", {x, x, x}, 2);
  c.Add("", "Silu", {x});
  c.Add("", "SiluGrad", {x, x});
  c.Add("", "Gelu", {x}, 1, {}, "");
  c.Add("", "GeluGrad", {x, x});
  c.Add("", "GeluBiasGrad", {x, x}, 2);
}

void AddLosses(Cases& c, const NodeSizes& s) {
  c.Begin("losses");
  NodeOperand scores = {{s.tokens, s.vocabulary}};
  NodeOperand labels = Indices(s.tokens, s.vocabulary);
  double lse = std::log(static_cast<double>(s.vocabulary));
  const Attributes ignore = {{"ignore_index", int64_t{-100}}};
  c.Add("", "Softmax", {scores}, 1, {{"axis", int64_t{-1}}}, "");
  c.Add("", "CrossEntropy", {scores, labels}, 2, ignore);
  c.Add("", "CrossEntropyGrad",
        {Filled({}, 1), scores, Filled({s.tokens}, lse), labels}, 1, ignore);
  c.SetShape(ToString(scores.shape));
  c.Add("", "CrossEntropyWithGrad", {Filled({}, 1), scores, labels}, 2, ignore);
  c.SetShape(ToString(scores.shape));
}

void AddAttention(Cases& c, const NodeSizes& s, DType dtype) {
  c.Begin("attention");
  for (int64_t t : s.sequences) {
    CausalSizes sizes = {.batch = s.tokens / t,
                         .sequence = t,
                         .heads = s.heads,
                         .kv_heads = s.kv_heads,
                         .head_size = s.head_size};
    c.Add(CausalAttention(sizes, dtype));
    c.Add(CausalAttentionGrad(sizes, dtype));
  }
  int64_t t = s.sequences.front();
  NodeOperand x = {{s.tokens / t, t, s.width()}};
  NodeOperand table = {{1, t, s.head_size}};
  c.Add("", "Rotary", {x, table, table}, 1, {{"heads", s.heads}});
  c.Add("", "RotaryGrad", {x, table, table}, 1, {{"heads", s.heads}});
}

void AddOptimizers(Cases& c, const NodeSizes& s) {
  c.Begin("optimizers");
  NodeOperand x = {{s.width(), s.width()}};
  c.Add("", "AdamW",
        {x, x, x, Filled(x.shape, 0.5), Filled({}, 3, DType::kInt64),
         Filled({}, 1e-3), Filled({}, 1), Filled({}, 1, DType::kBool)},
        3,
        {{"weight_decay", 0.01f},
         {"lr_scale", 1.0f},
         {"one_minus_beta1", 0.1f},
         {"one_minus_beta2", 0.001f},
         {"eps", 1e-8f}});
}

// What memory alone costs, to compare others with.
void AddMoves(Cases& c, const NodeSizes& s) {
  c.Begin("moves");
  NodeOperand x = {{s.tokens, s.width()}};
  NodeOperand table = {{s.vocabulary, s.width()}};
  NodeOperand tokens = Indices(s.tokens, s.vocabulary);
  c.Add("", "Add", {x, x}, 1, {}, "");
  c.Add("", "Transpose", {x}, 1, {{"perm", std::vector<int64_t>{1, 0}}}, "");
  c.Add("", "Gather", {table, tokens}, 1, {}, "");
  c.Add("", "GatherGrad", {x, tokens}, 1,
        {{"axis", int64_t{0}}, {"shape", table.shape}});
}

}  // namespace

NodeSizes SmallNodeSizes() {
  return {.tokens = 128,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 32,
          .hidden = 256,
          .vocabulary = 160,
          .sequences = {32, 64}};
}

std::vector<NodeCase> OtherCases(const NodeSizes& sizes, DType dtype) {
  Cases cases;
  AddQuantizers(cases, sizes);
  AddNorms(cases, sizes);
  AddActivations(cases, sizes);
  AddLosses(cases, sizes);
  AddAttention(cases, sizes, dtype);
  AddOptimizers(cases, sizes);
  AddMoves(cases, sizes);
  return cases.Take();
}

}  // namespace onnx_fp8
