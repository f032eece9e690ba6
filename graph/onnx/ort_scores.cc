// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/ort_scores.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace onnx_fp8 {
namespace {

constexpr unsigned kParameter = 1, kInput = 2;
using Origins = std::unordered_map<const Value*, unsigned>;
using ValueSet = std::unordered_set<const Value*>;

// Whether each value depends on parameters, on inputs or on both.
Origins FindOrigins(const Graph& graph,
                    const std::set<std::string>& parameters) {
  Origins origins;
  for (const Value* value : graph.inputs) origins[value] = kInput;
  for (const Value* value : graph.Initializers()) {
    if (parameters.contains(value->name)) origins[value] = kParameter;
  }
  for (const Node& node : graph.nodes()) {
    unsigned all = 0;
    for (const Value* in : node.inputs()) all |= in ? origins[in] : 0;
    for (const Value* out : node.outputs()) {
      if (out) origins[out] = all;
    }
  }
  return origins;
}

// "onnx::sigmoid_output::44".
bool IsNamedByArtifacts(const Value& value) {
  size_t at = value.name.rfind("::");
  return value.name.starts_with("onnx::") && at > 6 &&
         at + 2 < value.name.size() &&
         value.name.find_first_not_of("0123456789", at + 2) ==
             std::string::npos;
}

// Adds the values that depend on one of `values`.
void AddReaders(const Graph& graph, ValueSet* values) {
  for (const Node& node : graph.nodes()) {
    bool reads = std::ranges::any_of(
        node.inputs(), [&](const Value* in) { return values->contains(in); });
    for (const Value* out : node.outputs()) {
      if (reads && out) values->insert(out);
    }
  }
}

bool IsLabel(const Graph& graph, const Value* input, Origins& origins) {
  ValueSet readers = {input};
  AddReaders(graph, &readers);
  for (const Node& node : graph.nodes()) {
    if (!readers.contains(node.out(0))) continue;
    for (const Value* in : node.inputs()) {
      if (in && origins[in] == kParameter) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Value*> FindScores(const Graph& graph,
                               const std::set<std::string>& parameters) {
  Origins origins = FindOrigins(graph, parameters);
  ValueSet loss;
  for (const Value* input : graph.inputs) {
    if (IsLabel(graph, input, origins)) loss.insert(input);
  }
  for (const Node& node : graph.nodes()) {
    for (const Value* out : node.outputs()) {
      if (out && IsNamedByArtifacts(*out)) loss.insert(out);
    }
  }
  AddReaders(graph, &loss);
  std::vector<Value*> scores;
  for (const Node& node : graph.nodes()) {
    if (!loss.contains(node.out(0))) continue;
    for (Value* in : node.inputs()) {
      bool score = in && !loss.contains(in) &&
                   origins[in] == (kParameter | kInput) &&
                   std::ranges::find(scores, in) == scores.end();
      if (score) scores.push_back(in);
    }
  }
  return scores;
}

Value* ScoresOfTokens(Value* rows) {
  const Node* node = rows->producer;
  if (!node || !node->Is("Reshape")) return rows;
  Value* whole = node->in(0);
  bool tokens = whole->shape && whole->rank() >= 3 && rows->shape &&
                rows->rank() == 2 && whole->dim(-1) > 0 &&
                whole->dim(-1) == rows->dim(-1);
  return tokens ? whole : rows;
}

}  // namespace onnx_fp8
