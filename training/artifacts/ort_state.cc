// SPDX-License-Identifier: Apache-2.0
#include "training/artifacts/ort_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "base/check.h"
#include "graph/moment_shapes.h"
#include "onnx_fp8/float8.h"
#include "optimizers/optimizer.h"
#include "optimizers/own_optimizer.h"

namespace onnx_fp8 {
namespace {

constexpr char kUpdates[] = "optimizer.step";
constexpr char kGroup[] = "group0";  // the only one that they make

struct Moment {
  const char* theirs;
  const char* ours;
};
constexpr Moment kAdamMoments[] = {{"momentum0", kExpAvg},
                                   {"momentum1", kExpAvgSq}};

// Theirs has one moment of SGD, which stays zero; ours has none.
bool HasMoments(const std::string& kind) { return kind != "sgd"; }

const Tensor* FindIn(const NamedTensors& tensors, const std::string& name) {
  auto it =
      std::ranges::find(tensors, name, &std::pair<std::string, Tensor>::first);
  return it == tensors.end() ? nullptr : &it->second;
}

std::string TypeText(const Tensor* tensor) {
  if (!tensor) return "none";
  return Name(tensor->dtype()) + ToString(tensor->shape());
}

// The name of a moment's state. Errors: a tensor has it.
std::string StateOf(const std::string& parameter, const Moment& moment,
                    const OrtCheckpoint& checkpoint, const std::string& where) {
  const std::string name = parameter + "." + moment.ours;
  Check(!FindIn(checkpoint.trained, name) && !FindIn(checkpoint.frozen, name),
        "[", where, "] expected no tensor with the name of a moment, got ",
        name, ": rename it in the model");
  return name;
}

bool SameType(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape();
}

// Theirs keeps moments as floats.
template <typename T>
Tensor Widened(const Tensor& moment) {
  Tensor wide = Tensor::Allocate(DType::kFloat, moment.shape());
  std::ranges::transform(
      std::span(moment.data<T>(), static_cast<size_t>(moment.size())),
      wide.data<float>(), [](T x) { return Decode(x); });
  return wide;
}

// `scales`: of codes.
Tensor AsFloats(const Tensor& moment, const Tensor* scales, bool is_square,
                const std::string& where) {
  if (moment.dtype() == DType::kBFloat16) return Widened<BFloat16>(moment);
  if (moment.dtype() != DType::kE4M3) return moment;
  Check(scales && scales->dtype() == DType::kFloat &&
            scales->shape() == MomentScaleShape(moment.shape()),
        "[", where, "] lacks the scales of a moment");
  Tensor wide = Widened<E4M3>(moment);
  const MomentBlocks blocks = MomentBlocksOf(moment.shape());
  for (int64_t i = 0; i < wide.size(); ++i) {
    float& x = wide.data<float>()[i];
    x *= scales->data<float>()[blocks.Of(i)];
    if (is_square) x *= x;
    if (is_square && std::isnan(x)) x = std::numeric_limits<float>::infinity();
  }
  return wide;
}

}  // namespace

TensorMap OptimizerState(const OrtCheckpoint& checkpoint,
                         const std::string& kind, const std::string& where) {
  if (checkpoint.groups.empty()) return {};
  Check(checkpoint.groups.size() == 1, "[", where,
        "] expected the parameters of the optimizer in one group, got ",
        checkpoint.groups.size());
  const OrtOptimizerGroup& group = checkpoint.groups[0];
  Check(group.step >= 0, "[", where, "] expected a number of updates, got ",
        group.step);
  bool adam = std::ranges::any_of(group.parameters, [](const auto& state) {
    return FindIn(state.moments, kAdamMoments[1].theirs) != nullptr;
  });
  if (HasMoments(kind) && !adam) return {};
  TensorMap state = {{kUpdates, Tensor::Scalar(group.step)}};
  if (!HasMoments(kind)) return state;
  for (const auto& [name, parameter] : checkpoint.trained) {
    auto of = std::ranges::find(group.parameters, name, &OrtMoments::parameter);
    for (const Moment& known : kAdamMoments) {
      const char* theirs = known.theirs;
      const Tensor* moment =
          of == group.parameters.end() ? nullptr : FindIn(of->moments, theirs);
      Check(moment && SameType(*moment, parameter), "[", where, "] expected ",
            theirs, " of ", name, " as ", TypeText(&parameter), ", got ",
            TypeText(moment));
      state[StateOf(name, known, checkpoint, where)] = *moment;
    }
  }
  return state;
}

void TakeState(const TensorMap& state, const OptimizerSpec& spec,
               const std::string& where, OrtCheckpoint* checkpoint) {
  const bool fits = RestOf(spec).empty() && !IsOptimizerFile(spec.kind);
  Check(fits, "[", where, "] expected a run with AdamW or SGD, got ", spec.kind,
        ", whose state no checkpoint of onnxruntime-training holds");
  auto find = [&](const std::string& name) {
    auto it = state.find(name);
    return it == state.end() ? nullptr : &it->second;
  };
  for (auto& [name, parameter] : checkpoint->trained) {
    const Tensor* mine = find(name);
    Check(mine && SameType(*mine, parameter), "[", where, "] holds ", name,
          " as ", TypeText(&parameter), ", got ", TypeText(mine),
          " in the run: it is of another model");
    parameter = *mine;
  }
  for (auto& [name, parameter] : checkpoint->frozen) {
    const Tensor* mine = find(name);
    if (mine && SameType(*mine, parameter)) parameter = *mine;
  }
  checkpoint->groups.clear();
  const Tensor* updates = find(kUpdates);
  if (!updates) return;  // no step is done
  OrtOptimizerGroup group{
      kGroup, updates->data<int64_t>()[0], static_cast<float>(spec.lr), {}};
  for (const auto& [name, parameter] : checkpoint->trained) {
    OrtMoments moments{name, {}};
    for (const Moment& known : kAdamMoments) {
      const std::string state = StateOf(name, known, *checkpoint, where);
      const Tensor* mine = find(state);
      moments.moments.emplace_back(
          known.theirs,
          mine ? AsFloats(*mine, find(state + kMomentScale),
                          known.ours == std::string_view(kExpAvgSq), where)
               : Tensor::Zeros(parameter.dtype(), parameter.shape()));
      if (!HasMoments(spec.kind)) break;
    }
    group.parameters.push_back(std::move(moments));
  }
  checkpoint->groups.push_back(std::move(group));
}

}  // namespace onnx_fp8
