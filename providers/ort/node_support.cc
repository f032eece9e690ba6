// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/node_support.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "graph/onnx/upgrade.h"
#include "graph/op_facts.h"
#include "graph/passes/expand.h"

namespace onnx_fp8 {
namespace {

bool TakesSequences(const std::string& op) {
  return op == "SequenceAt" || op == "SequenceConstruct" ||
         op == "SequenceEmpty" || op == "SequenceErase" ||
         op == "SequenceInsert" || op == "SequenceLength" ||
         op == "SplitToSequence" || op == "ConcatFromSequence";
}

}  // namespace

bool RunsOn(const KernelRegistry& kernels, const Node& node) {
  if (FactsOf(node).kind == OpKind::kCollective) return false;
  if (kernels.Find(node.domain, node.op) || TakesSequences(node.op)) {
    return true;
  }
  if (!HasBody(node)) return false;
  std::unique_ptr<Graph> body;
  try {
    body = BodyGraphOf(node, kNormalOpset);
  } catch (const Error&) {  // shapes decide the body, and are not known yet
    return false;
  }
  return std::ranges::all_of(
      body->nodes(), [&](const Node& inner) { return RunsOn(kernels, inner); });
}

std::vector<size_t> SizesOf(const KernelRegistry& kernels, const Node& node) {
  static const std::map<std::string, std::vector<size_t>> others = {
      {"SequenceAt", {1}},     {"SequenceErase", {1}},
      {"SequenceInsert", {2}}, {"SplitToSequence", {1}},
      {"Compress", {0, 1}},    {"Expand", {1}},
      {"NonZero", {0}},        {"Slice", {1, 2, 3, 4}},
      {"Split", {1}},          {"Tile", {1}}};
  auto other = others.find(node.op);
  if (other != others.end()) return other->second;
  const KernelEntry* entry = kernels.Find(node.domain, node.op);
  if (!entry) return {};
  // A view's new shape or axes.
  if (entry->traits.view) return {1};
  return entry->traits.host_inputs;
}

}  // namespace onnx_fp8
