// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/measure_casts.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/glob.h"
#include "base/joined.h"
#include "graph/builder.h"
#include "graph/dependence.h"
#include "graph/op_facts.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

// The middle of the largest code and the number that would follow it.
float LimitOf(DType format) {
  return format == DType::kE4M3 ? 464.0f : 61440.0f;
}

constexpr int64_t kSampledRows = 128;
constexpr size_t kBias = 4;  // operand of a product

// "" if no product reads the codes.
std::string FirstGemm(const Value& codes) {
  for (const Node* use : codes.uses) {
    if (FactsOf(*use).kind == OpKind::kScaledProduct)
      return use->String("role", "");
  }
  return "";
}

Value* Measure(Graph& graph, const Node& quantizer, Node* before) {
  Builder b(graph, quantizer.out(0)->name + ".", before);
  b.set_metadata(quantizer.metadata);
  b.set_part(quantizer.part);
  const DType format = quantizer.out(0)->dtype;
  return b.Ours("CastStatistics",
                {quantizer.in(0), quantizer.out(0), quantizer.out(1)},
                {{"q_max", Float8Max(format)},
                 {"limit", LimitOf(format)},
                 {"block_rows", quantizer.Int("block_rows", 0)},
                 {"block_columns", quantizer.Int("block_columns", 0)}});
}

// Evenly spread ones.
std::vector<int64_t> SampledRows(int64_t rows) {
  std::vector<int64_t> sample(static_cast<size_t>(kSampledRows));
  for (int64_t i = 0; i < kSampledRows; ++i) {
    sample[static_cast<size_t>(i)] = i * rows / kSampledRows;
  }
  return sample;
}

// A product of the operands `left` and `right`, which are not cast.
Value* Measure(Graph& graph, const Node& product, Value* left, Value* right,
               Node* before) {
  Builder b(graph, product.out(0)->name + ".", before);
  b.set_metadata(product.metadata);
  b.set_part(product.part);
  const auto matrix = [&](Value* x) {
    return b.Op("Flatten", {x}, {{"axis", int64_t{-1}}});
  };
  Value *rows = matrix(left), *y = matrix(product.out(0));
  const int64_t turned = product.Int("transA", 0);
  if (y->concrete() && y->dim(0) > kSampledRows) {
    Value* sample = b.Ints(SampledRows(y->dim(0)));
    rows = b.Op("Gather", {rows, sample}, {{"axis", turned}});
    y = b.Op("Gather", {y, sample}, {{"axis", int64_t{0}}});
  }
  std::vector<Value*> operands = {rows, matrix(right)};
  if (product.in(kBias)) operands.push_back(product.in(kBias));
  Value* exact =
      b.Op("Gemm", operands,
           {{"transA", turned}, {"transB", product.Int("transB", 0)}});
  return b.Ours("ProductStatistics", {exact, y});
}

bool Matches(const std::vector<std::string>& layers, const std::string& fqn) {
  return layers.empty() ||
         std::ranges::any_of(layers, [&](const std::string& glob) {
           return MatchesGlob(glob, fqn);
         });
}

bool IsCast(const Node* node) {
  return node && FactsOf(*node).kind == OpKind::kQuantize;
}

}  // namespace

Value* BeforeCasts(const Node& quantizer) {
  Value* x = quantizer.in(0);
  const Node* decoding = x->producer;
  if (!decoding || !decoding->IsOurs("DequantizeBlock")) return x;
  const Node* first = decoding->in(0)->producer;
  return first && FactsOf(*first).kind == OpKind::kQuantize ? first->in(0) : x;
}

std::vector<Node*> MeasuredNodes(Graph& graph,
                                 const std::vector<std::string>& layers,
                                 bool keeps_codes) {
  std::unordered_set<const Value*> kept;
  if (keeps_codes) kept = FrozenAlone(graph);
  const auto casts = [&](const Node* node) {
    return IsCast(node) && !kept.contains(node->out(0));
  };
  std::vector<Node*> measured;
  std::set<std::string> idle(layers.begin(), layers.end()), names;
  for (Node& node : graph.nodes()) {
    const std::string fqn = node.String("fqn", "");
    const bool product = FactsOf(node).kind == OpKind::kScaledProduct;
    if (fqn.empty() || (!product && !IsCast(&node))) continue;
    names.insert(fqn);
    for (const std::string& glob : layers) {
      if (MatchesGlob(glob, fqn)) idle.erase(glob);
    }
    const bool may =
        product ? casts(node.in(0)->producer) && casts(node.in(2)->producer)
                : casts(&node);
    if (may && Matches(layers, fqn)) measured.push_back(&node);
  }
  Check(idle.empty() && !names.empty(), "[", graph.file,
        "] `stats`: expected a layer in FP8",
        idle.empty() ? "" : " that " + *idle.begin() + " matches", ", got ",
        names.empty() ? "none" : Joined({names.begin(), names.end()}));
  Check(!measured.empty(), "[", graph.file,
        "] `stats`: expected a layer that each step casts, got layers whose "
        "weights live as codes, and whose inputs other layers share: ",
        Joined(layers));
  return measured;
}

CastMeasures MeasureCasts(Graph& graph, const std::vector<std::string>& layers,
                          bool keeps_codes) {
  CastMeasures measures;
  std::map<const Value*, int64_t> copies;
  std::map<std::pair<std::string, std::string>, int64_t> products;
  std::vector<Value*> numbers;
  const std::vector<Node*> measured = MeasuredNodes(graph, layers, keeps_codes);
  auto wanted = measured.begin();
  auto& nodes = graph.nodes();
  for (auto it = nodes.begin(); wanted != measured.end();) {
    const Node& node = *it++;
    const std::string fqn = node.String("fqn", "");
    const std::string gemm = node.String("role", "");
    if (fqn.empty()) continue;
    // `use` counts the casts of all layers, so `layers` does not change it.
    const int64_t use =
        IsCast(&node) ? ++copies[node.in(0)] : ++products[{fqn, gemm}];
    if (&node != *wanted) continue;
    ++wanted;
    Node* before = it == nodes.end() ? nullptr : &*it;
    if (IsCast(&node)) {
      measures.casts.push_back({fqn, FirstGemm(*node.out(0)),
                                node.String("operand", ""), use,
                                node.out(0)->dtype});
      numbers.push_back(Measure(graph, node, before));
    } else {
      measures.casts.push_back({fqn, gemm, "product", use, DType::kFloat});
      numbers.push_back(Measure(graph, node, BeforeCasts(*node.in(0)->producer),
                                BeforeCasts(*node.in(2)->producer), before));
    }
  }
  Builder b(graph, "stats.");
  measures.numbers = b.Op("Concat", numbers, {{"axis", int64_t{0}}});
  graph.outputs.push_back(measures.numbers);
  return measures;
}

}  // namespace onnx_fp8
