// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock and QuantizeColumns. Bytes and scales are the CPU's. One kernel
// quantizes many tensors. Traffic: held_blocks.cu's, turned_blocks.cu's and
// other_blocks.cu's.
#include <span>
#include <vector>

#include "providers/cuda/fp8/blocks.h"
#include "providers/cuda/fp8/column_sums.h"
#include "providers/kernel.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8::cuda {
namespace {

// The kernel's workspace: factors, and parts of sums behind them.
struct Workspace {
  size_t factors, sums;  // bytes

  size_t bytes() const { return factors + sums; }
};

Workspace WorkspaceOf(const KernelContext& ctx, const Blocks& b) {
  auto factors = static_cast<size_t>(FactorsOf(b)) * sizeof(float);
  return {factors, ColumnSumsBytes(ctx)};
}

Blocks BlocksOfNode(KernelContext& ctx) {
  return BlocksOf(ctx, ctx.node().op == "QuantizeColumns");
}

size_t WorkspaceBytes(KernelContext& ctx) {
  return WorkspaceOf(ctx, BlocksOfNode(ctx)).bytes();
}

void QuantizeBlocks(std::span<KernelContext> nodes) {
  std::vector<Blocks> all;
  for (KernelContext& ctx : nodes) {
    Blocks& b = all.emplace_back(BlocksOfNode(ctx));
    Workspace workspace = WorkspaceOf(ctx, b);
    auto* memory = static_cast<char*>(ctx.Workspace(workspace.bytes()));
    if (workspace.factors > 0) b.factors = reinterpret_cast<float*>(memory);
    if (workspace.sums > 0) {
      b.sums = reinterpret_cast<float*>(memory + workspace.factors);
    }
  }
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  ClearFactors(stream, all);
  QuantizeHeld(stream, all);
  QuantizeTurned(stream, all);
  MeasureOthers(stream, all);
  MakeFactors(stream, all);
  EncodeColumns(stream, all);
  EncodeOthers(stream, all);
  EncodeTurned(stream, all);
  for (size_t i = 0; i < nodes.size(); ++i) {
    AddColumnSums(nodes[i], all[i].sums);
  }
}

void QuantizeBlock(KernelContext& ctx) { QuantizeBlocks({&ctx, 1}); }

}  // namespace

void RegisterQuantizeBlock(KernelRegistry& r) {
  const KernelTraits traits{.own_amaxes = 1,
                            .narrow_in = {0},
                            .workspace = WorkspaceBytes,
                            .many = QuantizeBlocks};
  r.Add("QuantizeBlock", QuantizeBlock, traits, kDomain);
  r.Add("QuantizeColumns", QuantizeBlock, traits, kDomain);
}

}  // namespace onnx_fp8::cuda
