// SPDX-License-Identifier: Apache-2.0
#include "optimizers/loss_scale.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "graph/builder.h"

namespace onnx_fp8 {

void CheckLossScaling(const LossScaling& how) {
  auto init = static_cast<float>(how.init);
  Check(init > 0 && std::isfinite(init),
        "[loss_scaling.init] expected a positive number, got ", how.init);
  Check(how.growth >= 1 && std::isfinite(how.growth),
        "[loss_scaling.growth] expected 1 or more, got ", how.growth);
  Check(how.backoff > 0 && how.backoff <= 1,
        "[loss_scaling.backoff] expected a number in (0, 1], got ",
        how.backoff);
  Check(how.interval >= 1, "[loss_scaling.interval] expected 1 or more, got ",
        how.interval);
}

void UpdateLossScale(Graph& graph, const LossScale& state,
                     const LossScaling& how, Value* ok) {
  Builder b(graph, "loss_scale.");
  b.set_part(Part::kOptimizer);
  Value* good = b.Add(state.good_steps, b.Int(1));
  Value* full = b.Op("Equal", {good, b.Int(how.interval)});
  Value* grown = b.Mul(state.scale, b.Scalar(how.growth, state.scale));
  Value* infinity =
      b.Scalar(std::numeric_limits<float>::infinity(), state.scale);
  Value* grows = b.Op("And", {full, b.Op("Less", {grown, infinity})});
  Value* after_good = b.Op("Where", {grows, grown, state.scale});
  Value* after_bad = b.Mul(state.scale, b.Scalar(how.backoff, state.scale));
  Value* counts = b.Op("And", {ok, b.Op("Not", {full})});
  graph.state.push_back(
      {state.scale, b.Op("Where", {ok, after_good, after_bad})});
  graph.state.push_back(
      {state.good_steps, b.Op("Where", {counts, good, b.Int(0)})});
}

}  // namespace onnx_fp8
