// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/node_support.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "graph/onnx/upgrade.h"
#include "graph/op_facts.h"
#include "graph/passes/expand.h"

namespace onnx_fp8 {
namespace {

bool TakesSequences(const Node& node) {
  return FactsOf(node).kind == OpKind::kSequence;
}

}  // namespace

bool RunsOn(const KernelRegistry& kernels, const Node& node) {
  if (IsCollective(node)) return false;
  if (kernels.Find(node.domain, node.op) || TakesSequences(node)) {
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
  if (TakesSequences(node)) return ListOf(FactsOf(node).host);
  if (node.Is("Compress")) return {0, 1};
  if (node.Is("NonZero")) return {0};
  const KernelEntry* entry = kernels.Find(node.domain, node.op);
  if (!entry) return {};
  // A view's new shape or axes.
  if (entry->traits.view) return {1};
  return entry->traits.host_inputs;
}

}  // namespace onnx_fp8
