// SPDX-License-Identifier: Apache-2.0
#include "training/step/data_parallel.h"

#include "base/check.h"
#include "base/random.h"
#include "graph/batch_statistics.h"
#include "training/ranks/over_ranks.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

// Separates the nodes' random numbers from other uses of the run's seed.
constexpr uint64_t kDrawKey = 0x64726f706f757421;

}  // namespace

LossOfRanks LossOverRanks(Graph& graph, Value* loss, const LossSpec& spec,
                          const Mesh& mesh) {
  Check(FindLoss(spec.kind) != nullptr, "[", graph.file,
        "] expected a loss of the table for several ranks, got ", spec.kind,
        ", whose mean may be over any number of labels");
  Builder b(graph, "loss.ranks.");
  Value* counted = CountedLabels(b, spec, graph.Find(spec.label));
  Value* all = SumOver(b, counted, mesh, kSampleAxes);
  // A mean over no labels is NaN, and its weight is 0. A flag of two elements,
  // because a Where by a flag of one is a branch (graph/needed_when.h).
  Value* two = b.Ints({2});
  Value* any =
      b.Op("Expand", {b.Op("Greater", {counted, b.Scalar(0, counted)}), two});
  Value* twice =
      b.Op("Where", {any, b.Op("Expand", {loss, two}), b.Scalar(0, loss)});
  Value* mean = b.Op("ReduceMean", {twice}, {{"keepdims", int64_t{0}}});
  Value* weight = b.Div(b.Cast(counted, loss->dtype), b.Cast(all, loss->dtype));
  Value* total = SumOver(b, b.Mul(mean, weight), mesh, kSampleAxes);
  graph.Rename(total, graph.FreshName("loss"));
  return {total, all};
}

uint64_t DrawOfRank(uint64_t seed, uint64_t draw, int64_t data_rank) {
  const uint64_t first = RandomBits(seed ^ kDrawKey, draw);
  if (data_rank == 0) return first;
  return RandomBits(first, static_cast<uint64_t>(data_rank));
}

void CheckSamplesAreApart(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    Check(!NormalizesByBatch(node), "[", node.Where(),
          "] expected a model without batch statistics for several ranks, got "
          "BatchNormalization in training: `batch_norm=eval` uses the running "
          "statistics");
  }
}

}  // namespace onnx_fp8
