// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/mx_scales.h"

#include <algorithm>

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kScales = 1;  // result of a QuantizeBlock
constexpr int64_t kMxBlock = 32;

bool IsScaleOperand(size_t i) { return i == 1 || i == 3; }

// Whether scales of 32 elements are powers of two, in floats.
bool HasMxScales(const Node* node) {
  bool quantizes = node && FactsOf(*node).scale == CodeScale::kBlocks;
  if (!quantizes || !node->out(kScales)) return false;
  int64_t rows = node->Int("block_rows", 0);
  int64_t columns = node->Int("block_columns", 0);
  return node->Int("pow2", 0) != 0 &&
         node->out(kScales)->dtype == DType::kFloat &&
         std::max(rows, columns) == kMxBlock && std::min(rows, columns) == 1;
}

// Whether the node reads them as scales, beside others of the same kind.
bool WantsBytes(const Node& reader, const Value* scales,
                const KernelRegistry& kernels) {
  const KernelEntry* entry = kernels.Find(reader.domain, reader.op);
  if (!entry || !entry->traits.byte_scales) return false;
  for (size_t i = 0; i < reader.inputs().size(); ++i) {
    const Value* x = reader.in(i);
    bool fits = x && (x->dtype == DType::kE8M0 || HasMxScales(x->producer));
    if (IsScaleOperand(i) ? !fits : x == scales) return false;
  }
  return true;
}

bool OnlyProductsRead(const Graph& graph, const Value* scales,
                      const KernelRegistry& kernels) {
  return !IsReturned(graph, scales) &&
         std::ranges::all_of(scales->uses, [&](const Node* reader) {
           return WantsBytes(*reader, scales, kernels);
         });
}

}  // namespace

void StoreMxScales(Graph& graph, const KernelRegistry& kernels) {
  for (Node& node : graph.nodes()) {
    if (!HasMxScales(&node)) continue;
    Value* scales = node.out(kScales);
    if (!OnlyProductsRead(graph, scales, kernels)) continue;
    node.attributes["scale_to"] = static_cast<int64_t>(DType::kE8M0);
    scales->dtype = DType::kE8M0;
  }
}

}  // namespace onnx_fp8
