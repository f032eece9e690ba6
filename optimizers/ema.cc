// SPDX-License-Identifier: Apache-2.0
#include "optimizers/ema.h"

#include <algorithm>

#include "optimizers/update.h"

namespace onnx_fp8 {
namespace {

// Whether the update is one that moves averages.
Value* IsDue(Builder& b, const OptimizerSpec& spec, Value* step, Value* ok) {
  if (spec.ema_every == 1) return ok;
  Value* rest = b.Op("Mod", {step, b.Int(spec.ema_every)});
  return b.Op("And", {ok, b.Op("Equal", {rest, b.Int(0)})});
}

// The formula of torch.lerp for weights below 0.5.
Value* Moved(Builder& b, const OptimizerSpec& spec, Value* average, Value* w) {
  Value* distance = b.Sub(w, average);
  return b.Add(average, b.Mul(distance, b.Scalar(1 - spec.ema, w)));
}

}  // namespace

void AppendAverages(Builder& b,
                    const std::vector<ParameterGradient>& parameters,
                    const OptimizerSpec& spec, const StateNames& names,
                    Value* step, Value* ok) {
  if (spec.ema == 0) return;
  Graph& graph = b.graph();
  Value* count = AddState(graph, names, kAveraged, Role::kCounter,
                          Tensor::Zeros(DType::kInt64, {}));
  Value* due = IsDue(b, spec, step, ok);
  Value* first = b.Op("Equal", {count, b.Int(0)});
  for (const ParameterGradient& p : parameters) {
    Value* average =
        AddState(graph, names, p.param->name + kEma, Role::kAverage,
                 Tensor::Zeros(p.param->dtype, *p.param->shape));
    Value* w =
        std::ranges::find(graph.state, p.param, &StateBinding::state)->next;
    Value* next = b.Op("Where", {first, w, Moved(b, spec, average, w)});
    Bind(graph, average, b.Op("Where", {due, next, average}));
  }
  Bind(graph, count, b.Add(count, b.Cast(due, DType::kInt64)));
}

}  // namespace onnx_fp8
