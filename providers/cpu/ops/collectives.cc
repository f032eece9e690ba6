// SPDX-License-Identifier: Apache-2.0
//
// The ops of graph/schemas/collectives.cc, by the communicator of their group.
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/one_rank.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// Errors: this run has no such group, or one of another size than the graph was
// built for.
Communicator& GroupOf(const KernelContext& ctx) {
  const std::string name = ctx.String("group", "");
  const int64_t ranks = ctx.Int("ranks", 1);
  Communicator* group = ctx.Group(name);
  if (!group && ranks == 1) {
    static thread_local OneRank alone;
    return alone;
  }
  Check(group && group->size() == ranks, "[", ctx.Where(), "] expected ", ranks,
        " ranks in the group ", name, ", got ",
        group ? std::to_string(group->size()) : "no such group");
  return *group;
}

void AllReduceTogether(std::span<KernelContext> nodes) {
  const KernelContext& first = nodes[0];
  const Reduction reduction = first.String("reduction", "sum") == "max"
                                  ? Reduction::kMax
                                  : Reduction::kSum;
  std::vector<Transfer> transfers;
  for (KernelContext& ctx : nodes) {
    const Tensor& x = Operand(ctx, 0);
    Tensor& y = ctx.Out(0, x.dtype(), x.shape());
    transfers.push_back({x.raw(), y.raw(), static_cast<size_t>(y.size())});
  }
  GroupOf(first).AllReduce(reduction, first.In(0).dtype(), transfers);
}

void AllReduce(KernelContext& ctx) { AllReduceTogether({&ctx, 1}); }

void AllGatherTogether(std::span<KernelContext> nodes) {
  Communicator& group = GroupOf(nodes[0]);
  std::vector<Transfer> transfers;
  // The rows of all ranks, and a result that keeps fewer.
  std::vector<std::pair<Tensor, Tensor*>> wholes;
  for (KernelContext& ctx : nodes) {
    const Tensor& x = Operand(ctx, 0);
    Shape shape = x.shape();
    Check(!shape.empty(), "[", ctx.Where(),
          "] expected an operand with an axis, got a scalar");
    shape[0] *= group.size();
    Shape kept = shape;
    kept[0] = ctx.Int("rows", shape[0]);
    Check(kept[0] >= 0 && kept[0] <= shape[0], "[", ctx.Where(),
          "] expected at most ", shape[0], " rows, got ", kept[0]);
    Tensor& y = ctx.Out(0, x.dtype(), kept);
    void* to = y.raw();
    if (kept != shape) {
      wholes.emplace_back(Tensor::Allocate(x.dtype(), shape), &y);
      to = wholes.back().first.raw();
    }
    transfers.push_back({x.raw(), to, x.bytes()});
  }
  group.AllGather(transfers);
  for (const auto& [whole, y] : wholes) {
    if (y->bytes() > 0) std::memcpy(y->raw(), whole.raw(), y->bytes());
  }
}

void AllGather(KernelContext& ctx) { AllGatherTogether({&ctx, 1}); }

void ReduceScatterTogether(std::span<KernelContext> nodes) {
  Communicator& group = GroupOf(nodes[0]);
  std::vector<Transfer> transfers;
  for (KernelContext& ctx : nodes) {
    const Tensor& x = Operand(ctx, 0);
    Shape shape = x.shape();
    Check(!shape.empty() && shape[0] % group.size() == 0, "[", ctx.Where(),
          "] expected a first axis that ", group.size(), " ranks divide, got ",
          ToString(shape));
    shape[0] /= group.size();
    Tensor& y = ctx.Out(0, x.dtype(), shape);
    transfers.push_back({x.raw(), y.raw(), static_cast<size_t>(y.size())});
  }
  group.ReduceScatter(nodes[0].In(0).dtype(), transfers);
}

void ReduceScatter(KernelContext& ctx) { ReduceScatterTogether({&ctx, 1}); }

void Broadcast(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor& y = ctx.Out(0, x.dtype(), x.shape());
  if (x.bytes() > 0 && !y.SharesDataWith(x)) {
    std::memcpy(y.raw(), x.raw(), x.bytes());
  }
  GroupOf(ctx).Broadcast(y.raw(), y.bytes(),
                         static_cast<int>(ctx.Int("root", 0)));
}

}  // namespace

void RegisterCollectives(KernelRegistry& r) {
  r.Add("AllReduce", AllReduce,
        {.in_place = {{0, 0}}, .many = AllReduceTogether}, kDomain);
  r.Add("AllGather", AllGather, {.moves = true, .many = AllGatherTogether},
        kDomain);
  r.Add("ReduceScatter", ReduceScatter, {.many = ReduceScatterTogether},
        kDomain);
  r.Add("Broadcast", Broadcast, {.in_place = {{0, 0}}}, kDomain);
}

}  // namespace onnx_fp8
