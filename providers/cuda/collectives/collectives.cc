// SPDX-License-Identifier: Apache-2.0
//
// The ops of graph/schemas/collectives.cc, by NCCL on the provider's stream. A
// sum of NCCL adds the ranks' elements in an order of its own. All ranks get
// the same bits, but not the bits of the host's communicators. A maximum of
// NCCL loses NaN; here NaN in an operand is an error of the node.
#include <vector>

#include "providers/cuda/collectives/complain_of_nan.h"
#include "providers/cuda/collectives/nccl_group.h"
#include "providers/cuda/core/check.h"
#include "providers/cuda/core/queue.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

// Null for a group of one rank, whose results are copies. Errors: this run has
// no such group, or one of another size than the graph was built for.
NcclGroup* NcclGroupOf(const KernelContext& ctx) {
  const std::string name = ctx.String("group", "");
  const int64_t ranks = ctx.Int("ranks", 1);
  Communicator* group = ctx.Group(name);
  if (ranks == 1 && (!group || group->size() == 1)) return nullptr;
  Check(group && group->size() == ranks, "[", ctx.Where(), "] expected ", ranks,
        " ranks in the group ", name, ", got ",
        group ? std::to_string(group->size()) : "no such group");
  return &QueueOf(ctx).Own<NcclGroups>().Of(*group);
}

NcclType NcclTypeOf(const KernelContext& ctx, DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return kNcclFloat;
    case DType::kDouble:
      return kNcclDouble;
    case DType::kInt32:
      return kNcclInt32;
    case DType::kInt64:
      return kNcclInt64;
    default:
      Fail("[", ctx.Where(), "] expected float, double, int32 or int64, got ",
           Name(dtype));
  }
}

void CopyOperand(KernelContext& ctx, const Tensor& x, Tensor& y) {
  if (x.bytes() == 0 || x.raw() == y.raw()) return;
  ONNX_FP8_CUDA(cudaMemcpyAsync(y.raw(), x.raw(), x.bytes(),
                                cudaMemcpyDeviceToDevice,
                                QueueOf(ctx).stream()));
}

void NcclAllReduce(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor& y = ctx.Out(0, x.dtype(), x.shape());
  const NcclType type = NcclTypeOf(ctx, x.dtype());
  const bool max = ctx.String("reduction", "sum") == "max";
  NcclGroup* group = NcclGroupOf(ctx);
  if (!group) return CopyOperand(ctx, x, y);
  if (max) ComplainOfNan(ctx);
  group->CheckNccl(
      NcclFunctions().AllReduce(x.raw(), y.raw(), static_cast<size_t>(x.size()),
                                type, max ? kNcclMax : kNcclSum, group->comm(),
                                QueueOf(ctx).stream()),
      "ncclAllReduce");
}

// The rows that an all-gather keeps, and the rows of all ranks.
struct GatheredRows {
  int64_t kept, all;
};

GatheredRows RowsOfGather(const KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Check(x.rank() > 0, "[", ctx.Where(),
        "] expected an operand with an axis, got a scalar");
  const int64_t all = x.dim(0) * ctx.Int("ranks", 1);
  const int64_t kept = ctx.Int("rows", all);
  Check(kept >= 0 && kept <= all, "[", ctx.Where(), "] expected at most ", all,
        " rows, got ", kept);
  return {kept, all};
}

// With fewer rows than the ranks have, all rows go through the workspace.
size_t GatherWorkspace(KernelContext& ctx) {
  GatheredRows rows = RowsOfGather(ctx);
  if (rows.kept == rows.all) return 0;
  return static_cast<size_t>(ctx.Int("ranks", 1)) * ctx.In(0).bytes();
}

// Where the rows of all ranks are, and the result that keeps some of them.
struct Gathered {
  const void* rows;
  Tensor* kept;
};

// `group` may be null.
Gathered GatherRows(KernelContext& ctx, NcclGroup* group) {
  const GatheredRows rows = RowsOfGather(ctx);
  const Tensor& x = ctx.In(0);
  Shape shape = x.shape();
  shape[0] = rows.kept;
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (!group) return {x.raw(), &y};
  void* to =
      rows.kept == rows.all ? y.raw() : ctx.Workspace(GatherWorkspace(ctx));
  group->CheckNccl(
      NcclFunctions().AllGather(x.raw(), to, x.bytes(), kNcclUInt8,
                                group->comm(), QueueOf(ctx).stream()),
      "ncclAllGather");
  return {to, &y};
}

// One call of NCCL, which begins when its group ends.
void NcclAllGatherTogether(std::span<KernelContext> nodes) {
  NcclGroup* group = NcclGroupOf(nodes[0]);
  std::vector<Gathered> all;
  NcclGroupCall call(group);
  for (KernelContext& ctx : nodes) all.push_back(GatherRows(ctx, group));
  call.End();
  for (const Gathered& one : all) {
    Tensor& y = *one.kept;
    if (y.bytes() == 0 || one.rows == y.raw()) continue;
    ONNX_FP8_CUDA(cudaMemcpyAsync(y.raw(), one.rows, y.bytes(),
                                  cudaMemcpyDeviceToDevice,
                                  QueueOf(nodes[0]).stream()));
  }
}

void NcclAllGather(KernelContext& ctx) { NcclAllGatherTogether({&ctx, 1}); }

void NcclReduceScatter(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  const int64_t ranks = ctx.Int("ranks", 1);
  Shape shape = x.shape();
  Check(!shape.empty() && shape[0] % ranks == 0, "[", ctx.Where(),
        "] expected a first axis that ", ranks, " ranks divide, got ",
        ToString(shape));
  shape[0] /= ranks;
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  const NcclType type = NcclTypeOf(ctx, x.dtype());
  NcclGroup* group = NcclGroupOf(ctx);
  if (!group) return CopyOperand(ctx, x, y);
  group->CheckNccl(NcclFunctions().ReduceScatter(
                       x.raw(), y.raw(), static_cast<size_t>(y.size()), type,
                       kNcclSum, group->comm(), QueueOf(ctx).stream()),
                   "ncclReduceScatter");
}

void NcclBroadcast(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor& y = ctx.Out(0, x.dtype(), x.shape());
  NcclGroup* group = NcclGroupOf(ctx);
  if (!group) return CopyOperand(ctx, x, y);
  group->CheckNccl(
      NcclFunctions().Broadcast(x.raw(), y.raw(), x.bytes(), kNcclUInt8,
                                static_cast<int>(ctx.Int("root", 0)),
                                group->comm(), QueueOf(ctx).stream()),
      "ncclBroadcast");
}

// The nodes of a bucket, as one call of NCCL.
template <Kernel kernel>
void Together(std::span<KernelContext> nodes) {
  NcclGroupCall call(NcclGroupOf(nodes[0]));
  for (KernelContext& ctx : nodes) kernel(ctx);
  call.End();
}

}  // namespace

void RegisterCollectives(KernelRegistry& r) {
  r.Add("AllReduce", NcclAllReduce,
        {.in_place = {{0, 0}}, .many = Together<NcclAllReduce>}, kDomain);
  r.Add("AllGather", NcclAllGather,
        {.moves = true,
         .workspace = GatherWorkspace,
         .many = NcclAllGatherTogether},
        kDomain);
  r.Add("ReduceScatter", NcclReduceScatter,
        {.many = Together<NcclReduceScatter>}, kDomain);
  r.Add("Broadcast", NcclBroadcast, {.in_place = {{0, 0}}}, kDomain);
}

}  // namespace onnx_fp8::cuda
