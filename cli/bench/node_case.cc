// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/node_case.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "cli/bench/random_tensor.h"
#include "graph/builder.h"

namespace onnx_fp8 {
namespace {

// Numbers that are drawn. Larger tensors repeat them: a prime number of them,
// so that the rows of a matrix differ.
constexpr int64_t kDrawn = 262139;

Tensor Repeated(const Tensor& some, const Shape& shape) {
  Tensor all = Tensor::Allocate(some.dtype(), shape);
  auto* to = static_cast<char*>(all.raw());
  for (size_t done = 0; done < all.bytes(); done += some.bytes()) {
    std::memcpy(to + done, some.raw(),
                std::min(some.bytes(), all.bytes() - done));
  }
  return all;
}

Tensor ContentOf(const NodeOperand& operand, DType kept, uint64_t seed) {
  int64_t size = NumElements(operand.shape);
  Shape drawn = {std::min(size, kDrawn)};
  Tensor some = RandomTensor(drawn, DType::kFloat, seed);
  for (float& x : std::span(some.data<float>(), drawn[0])) {
    if (operand.fill == NodeOperand::kValue) {
      x = static_cast<float>(operand.value);
    } else if (operand.fill == NodeOperand::kIndices) {
      x = static_cast<float>((x + 1) / 2 * operand.value);
    }
  }
  return Repeated(ConvertTo(some, kept), operand.shape);
}

// Whether all registries list `i` in this trait of the node's op.
bool AllList(const std::vector<const KernelRegistry*>& registries,
             const NodeCase& node,
             const std::vector<size_t> KernelTraits::*trait, size_t i) {
  return std::ranges::all_of(registries, [&](const KernelRegistry* r) {
    const KernelEntry* entry = r->Find(node.domain, node.op);
    return entry->traits.moves ||
           std::ranges::count(entry->traits.*trait, i) > 0;
  });
}

}  // namespace

std::shared_ptr<Graph> MakeNodeGraph(
    const NodeCase& node, DType dtype,
    const std::vector<const KernelRegistry*>& registries) {
  for (const KernelRegistry* r : registries) {
    Check(r->Find(node.domain, node.op), "there is no kernel for ", node.op);
  }
  auto graph = std::make_shared<Graph>();
  std::vector<Value*> in;
  std::vector<DType> narrow;
  for (const NodeOperand& operand : node.operands) {
    size_t i = in.size();
    bool keeps = operand.fill == NodeOperand::kRandom &&
                 operand.dtype == DType::kFloat && dtype != DType::kFloat &&
                 AllList(registries, node, &KernelTraits::narrow_in, i);
    in.push_back(graph->AddInitializer(
        Concat("operand", i),
        ContentOf(operand, keeps ? dtype : operand.dtype, i + 1)));
    in.back()->dtype = operand.dtype;
    narrow.push_back(keeps ? dtype : DType::kUndefined);
  }
  std::vector<Value*> out = Builder(*graph).Ops(node.op, in, node.results,
                                                node.attributes, node.domain);
  for (size_t i = 0; i < in.size(); ++i) in[i]->narrow = narrow[i];
  for (size_t i = 0; i < out.size(); ++i) {
    if (dtype == DType::kFloat || out[i]->dtype != DType::kFloat) continue;
    if (!AllList(registries, node, &KernelTraits::narrow_out, i)) continue;
    out[i]->narrow = dtype;
  }
  return graph;
}

}  // namespace onnx_fp8
