// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/measure_casts.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_set>

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

}  // namespace

std::vector<Node*> MeasuredQuantizers(Graph& graph,
                                      const std::vector<std::string>& layers,
                                      bool keeps_codes) {
  std::unordered_set<const Value*> kept;
  if (keeps_codes) kept = FrozenAlone(graph);
  std::vector<Node*> measured;
  std::set<std::string> idle(layers.begin(), layers.end()), names;
  for (Node& node : graph.nodes()) {
    const std::string fqn = node.String("fqn", "");
    if (FactsOf(node).kind != OpKind::kQuantize || fqn.empty()) continue;
    names.insert(fqn);
    bool wanted = layers.empty();
    for (const std::string& glob : layers) {
      if (!MatchesGlob(glob, fqn)) continue;
      idle.erase(glob);
      wanted = true;
    }
    if (wanted && !kept.contains(node.out(0))) measured.push_back(&node);
  }
  Check(idle.empty() && !names.empty(), "[", graph.file,
        "] `stats`: expected a layer in FP8",
        idle.empty() ? "" : " that " + *idle.begin() + " matches", ", got ",
        names.empty() ? "none" : Joined({names.begin(), names.end()}));
  return measured;
}

CastMeasures MeasureCasts(Graph& graph, const std::vector<std::string>& layers,
                          bool keeps_codes) {
  CastMeasures measures;
  std::map<const Value*, int64_t> copies;
  std::vector<Value*> numbers;
  const std::vector<Node*> measured =
      MeasuredQuantizers(graph, layers, keeps_codes);
  auto wanted = measured.begin();
  auto& nodes = graph.nodes();
  for (auto it = nodes.begin(); wanted != measured.end(); ++it) {
    if (&*it != *wanted) continue;
    ++wanted;
    measures.casts.push_back({it->String("fqn", ""), FirstGemm(*it->out(0)),
                              it->String("operand", ""), ++copies[it->in(0)],
                              it->out(0)->dtype});
    const auto next = std::next(it);
    numbers.push_back(
        Measure(graph, *it, next == nodes.end() ? nullptr : &*next));
  }
  Builder b(graph, "stats.");
  measures.numbers = b.Op("Concat", numbers, {{"axis", int64_t{0}}});
  graph.outputs.push_back(measures.numbers);
  return measures;
}

}  // namespace onnx_fp8
