// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/measure_casts.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/check.h"
#include "base/glob.h"
#include "base/joined.h"
#include "graph/builder.h"
#include "graph/op_facts.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {
namespace {

// The middle of the largest code and the number that would follow it.
float LimitOf(DType format) {
  return format == DType::kE4M3 ? 464.0f : 61440.0f;
}

// "" if no product reads the codes.
std::string FirstGemm(const Value& codes) {
  for (const Node* use : codes.uses) {
    if (FactsOf(*use).kind == OpKind::kScaledProduct)
      return use->String("role", "");
  }
  return "";
}

std::string Ordinal(int64_t n) {
  return Concat(n, n == 2 ? "nd" : n == 3 ? "rd" : "th");
}

Value* Measure(Graph& graph, Node& quantizer, Node* before) {
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

}  // namespace

std::string MeasuredCast::Label() const {
  return Concat(fqn, " ", gemm, " ", operand,
                use > 1 ? " (" + Ordinal(use) + " copy)" : "");
}

CastMeasures MeasureCasts(Graph& graph,
                          const std::vector<std::string>& layers) {
  CastMeasures measures;
  std::set<std::string> idle(layers.begin(), layers.end()), names;
  std::map<const Value*, int64_t> copies;
  std::vector<Value*> numbers;
  auto& nodes = graph.nodes();
  for (auto it = nodes.begin(); it != nodes.end(); ++it) {
    Node& node = *it;
    const std::string fqn = node.String("fqn", "");
    if (FactsOf(node).kind != OpKind::kQuantize || fqn.empty()) continue;
    names.insert(fqn);
    const int64_t use = ++copies[node.in(0)];
    bool wanted = layers.empty();
    for (const std::string& glob : layers) {
      if (!MatchesGlob(glob, fqn)) continue;
      idle.erase(glob);
      wanted = true;
    }
    if (!wanted) continue;
    measures.casts.push_back({fqn, FirstGemm(*node.out(0)),
                              node.String("operand", ""), use,
                              node.out(0)->dtype});
    const auto next = std::next(it);
    numbers.push_back(
        Measure(graph, node, next == nodes.end() ? nullptr : &*next));
  }
  Check(idle.empty(), "[", graph.file,
        "] `stats`: expected a layer in FP8 that ",
        idle.empty() ? "" : *idle.begin(), " matches, got ",
        names.empty() ? "none" : Joined({names.begin(), names.end()}));
  if (numbers.empty()) return measures;
  Builder b(graph, "stats.");
  measures.numbers = b.Op("Concat", numbers, {{"axis", int64_t{0}}});
  graph.outputs.push_back(measures.numbers);
  return measures;
}

}  // namespace onnx_fp8
