// SPDX-License-Identifier: Apache-2.0
#include "training/state/session_state.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/joined.h"
#include "optimizers/ema.h"
#include "optimizers/master_format.h"
#include "optimizers/optimizer.h"
#include "providers/run/executor.h"
#include "training/state/carry_scales.h"
#include "training/state/masters.h"

namespace onnx_fp8 {
namespace {

constexpr char kSkipped[] = "session.skipped";
constexpr char kTracked[] = "session.tracked_batches";
constexpr char kRecipe[] = "session.recipe";
// Only in memory; a checkpoint has a field of its own.
constexpr char kModel[] = "session.model";

template <typename T>
std::string TypeText(const T& tensor) {
  return Name(tensor.dtype()) + ToString(tensor.shape());
}

// The dtypes in which moments of a weight may be kept.
std::vector<std::string> MomentDTypes(const OptimizerSpec& spec, DType weight) {
  const DType format = MomentFormat(spec, weight);
  std::vector<std::string> names = {Name(format)};
  if (IsFloat8(format)) names.push_back(Name(weight));  // where codes don't pay
  return names;
}

// A correction of a weight: its name, and its type or "none".
struct KeptCorrection {
  std::string name, type = "none";
};

// By weight. `type_of`: of one of the names.
template <typename Names, typename TypeOf>
std::map<std::string, KeptCorrection> CorrectionsAmong(const Names& names,
                                                       TypeOf type_of) {
  std::map<std::string, KeptCorrection> corrections;
  for (const auto& [name, tensor] : names) {
    const std::string type = type_of(name);
    const std::string weight = WeightOfCorrection(name);
    const bool is_one = !weight.empty() && (type.starts_with("int8[") ||
                                            type.starts_with("int16["));
    if (is_one) corrections[weight] = {name, type};
  }
  return corrections;
}

// Whether the name is of a state that an optimizer, of one's own too, may keep
// of one of these weights: the weight's name, a dot and a word.
bool IsStateOf(const SourceMap& weights, const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  const std::string weight = name.substr(0, dot);
  // A weight with the name of a part of a session can't be told from it.
  const bool is_part = weight == "optimizer" || weight == "fp8" ||
                       weight == "loss_scale" || weight == "micro";
  return !is_part && weights.contains(weight);
}

// The names of all that a run with this optimizer may keep of the weights.
std::set<std::string> StateOfWeights(const SourceMap& weights,
                                     const Graph& model,
                                     const OptimizerSpec& spec,
                                     const std::set<std::string>& of_rest) {
  const std::vector<std::string> own = MomentsOf(spec, false),
                                 rest = of_rest.empty() ? own
                                                        : MomentsOf(spec, true);
  std::set<std::string> names;
  for (const auto& [weight, source] : weights) {
    for (const char* end : {kEma, kCorrection}) {
      names.insert(StateName(model, weight + end));
    }
    for (const auto& moment : of_rest.contains(weight) ? rest : own) {
      const std::string hint = Concat(weight, ".", moment);
      names.insert(StateName(model, hint));
      names.insert(StateName(model, hint + kMomentScale));
    }
  }
  return names;
}

// Errors: as CheckWeights', by another `master`.
void CheckMasters(const Checkpoint& checkpoint, const SourceMap& kept,
                  const std::string& where) {
  const auto is_half = [](const std::string& type) {
    return type.starts_with("bfloat16[");
  };
  const auto refuse = [&](const std::string& name, const std::string& expected,
                          const std::string& got) {
    Fail("[", where, "] expected the checkpoint to hold ", name, " as ",
         expected, ", got ", got,
         ": a run keeps the `master` and the `frozen` with which it began");
  };
  const auto type_there = [&](const auto& name) {
    return checkpoint.TypeOf(name);
  };
  auto there = CorrectionsAmong(checkpoint.state, type_there);
  there.merge(CorrectionsAmong(checkpoint.shards, type_there));
  auto here = CorrectionsAmong(
      kept, [&](const auto& name) { return TypeText(kept.at(name)); });
  for (const auto& [name, tensor] : kept) {
    const std::string expected = TypeText(tensor);
    const std::string got = checkpoint.TypeOf(name);
    if (is_half(expected) != is_half(got)) refuse(name, expected, got);
    if (!is_half(expected)) continue;
    const KeptCorrection own = here[name], other = there[name];
    if (own.type == other.type) continue;
    refuse(own.name.empty() ? other.name : own.name, own.type, other.type);
  }
}

}  // namespace

void AddStateNotes(const StepCounts& counts,
                   const std::optional<std::vector<ScaleSlot>>& slots,
                   const Recipe& recipe, StateNotes* notes) {
  (*notes)[kSkipped] = std::to_string(counts.skipped);
  (*notes)[kTracked] = std::to_string(counts.tracked);
  (*notes)[kSlotsNote] = SlotsText(slots.value_or(std::vector<ScaleSlot>()));
  (*notes)[kRecipe] = RecipeText(recipe);
}

void EraseStateNotes(StateNotes* notes) {
  for (const char* own : {kSkipped, kTracked, kSlotsNote, kRecipe})
    notes->erase(own);
}

StepCounts StepCountsOf(const StateNotes& notes, int64_t batches,
                        int64_t grad_accum, const std::string& where) {
  StepCounts counts;
  auto skipped = notes.find(kSkipped), tracked = notes.find(kTracked);
  counts.skipped =
      CountIn(skipped == notes.end() ? "" : skipped->second, kSkipped, where);
  // Older checkpoints do not say it.
  counts.tracked = tracked == notes.end()
                       ? batches - counts.skipped * grad_accum
                       : CountIn(tracked->second, kTracked, where);
  return counts;
}

Recipe RecipeOf(const StateNotes& notes) {
  auto it = notes.find(kRecipe);
  return ParseRecipe(it == notes.end() ? "" : it->second);
}

Checkpoint ToCheckpoint(const SessionState& state,
                        const std::string& fingerprint) {
  Check(state.step >= 0, "[state] expected a number of steps, got ",
        state.step);
  for (const char* own : {kSkipped, kSlotsNote, kRecipe, kModel}) {
    Check(state.notes.contains(own), "[state] expected the note ", own,
          ", got none");
  }
  Check(state.notes.at(kModel) == fingerprint,
        "[state] expected state of this model, got that of another");
  Checkpoint checkpoint;
  checkpoint.step = state.step;
  checkpoint.notes = state.notes;
  checkpoint.state = state.tensors;
  return checkpoint;
}

SessionState ToState(int64_t step, StateNotes notes,
                     const std::string& fingerprint, TensorMap tensors) {
  notes[kModel] = fingerprint;
  return {step, std::move(notes), std::move(tensors)};
}

void CheckWeights(const Checkpoint& checkpoint, const SourceMap& kept,
                  const std::string& where) {
  CheckMasters(checkpoint, kept, where);
  for (const auto& [name, tensor] : kept) {
    const std::string expected = TypeText(tensor);
    const std::string got = checkpoint.TypeOf(name);
    Check(got == expected, "[", where, "] expected the checkpoint to hold ",
          name, " as ", expected, ", got ", got);
  }
}

void CheckMoments(const Checkpoint& checkpoint, const SourceMap& weights,
                  const OptimizerSpec& spec, const std::string& where) {
  for (const auto& [name, weight] : weights) {
    for (const char* moment : kMoments) {
      const std::string state = name + "." + moment;
      if (weights.contains(state)) continue;  // it is no moment
      const std::string got = checkpoint.TypeOf(state);
      const auto expected = MomentDTypes(spec, weight.dtype());
      const bool fits =
          got == "none" || std::ranges::any_of(expected, [&](const auto& name) {
            return got.starts_with(name + "[");
          });
      Check(fits, "[", where, "] expected the checkpoint to hold ", state,
            " in ", Joined(expected), ", got ", got,
            ": a run keeps the `moments` with which it began");
    }
  }
}

std::string DropUnkept(const SourceMap& weights, const Graph& model,
                       const OptimizerSpec& spec,
                       const std::set<std::string>& of_rest,
                       Checkpoint* checkpoint) {
  const std::set<std::string> kept =
      StateOfWeights(weights, model, spec, of_rest);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint->state) names.push_back(name);
  for (const auto& [name, tensor] : checkpoint->shards) names.push_back(name);
  const auto drop = [&](const std::string& name) {
    return checkpoint->state.erase(name) + checkpoint->shards.erase(name);
  };
  size_t moments = 0, averages = 0;
  for (const std::string& name : names) {
    if (kept.contains(name) || weights.contains(name)) continue;
    if (IsStateOf(weights, name)) {
      moments += drop(name);
    } else if (const size_t dot = name.rfind(kMomentScale);
               dot != std::string::npos &&
               IsStateOf(weights, name.substr(0, dot))) {
      drop(name);
    }
  }
  if (spec.ema == 0) {
    for (const auto& [weight, source] : weights) {
      averages += drop(StateName(model, weight + kEma));
    }
    drop(StateName(model, kAveraged));
  }
  if (!spec.clip_previous) drop(StateName(model, kPreviousNorm));
  std::string remark;
  if (moments > 0) {
    remark = Concat("`optimizer=", spec.kind, "`: ", moments,
                    " moments of the optimizer before are dropped");
  }
  if (averages > 0) {
    remark += Concat(remark.empty() ? "" : "; ", "without `ema`: ", averages,
                     " averages of weights are dropped");
  }
  return remark;
}

void TakeParts(Checkpoint* checkpoint, const ShardedState& sharded) {
  for (auto& [name, tensor] : checkpoint->state) {
    if (auto shard = sharded.Find(name)) tensor = PartOf(tensor, *shard);
  }
  for (auto& [name, tensor] : checkpoint->shards) {
    Tensor& kept = checkpoint->state[name];
    auto shard = sharded.Find(name);
    if (!shard) {
      kept = tensor.Whole();
    } else if (tensor.ranks == 1 && !shard->tensor_part) {
      kept = WithZeroRows(tensor.Rows(shard->begin, shard->rows), *shard);
    } else {
      kept = PartOf(tensor.Whole(), *shard);
    }
  }
}

void ReplaceState(const Checkpoint& checkpoint, const ShardedState& sharded,
                  StateStore* state) {
  std::erase_if(state->tensors(), [&](const auto& entry) {
    return !checkpoint.state.contains(entry.first) &&
           !checkpoint.frozen.contains(entry.first);
  });
  // No step may run before the state is complete.
  state->tensors().emplace(kHalfUpdated, Tensor::Scalar(true));
  for (const auto& [name, tensor] : checkpoint.state) {
    state->Read(name, tensor);
  }
  for (const auto& [name, source] : checkpoint.frozen) {
    const auto shard = sharded.Find(name);
    const Tensor whole = source.Pull();
    state->Read(name, shard ? PartOf(whole, *shard) : whole);
  }
  state->Erase(kHalfUpdated);
}

void CheckWeights(const TensorMap& given, const SourceMap& weights,
                  const std::string& model) {
  for (const auto& [name, tensor] : given) {
    auto it = weights.find(name);
    Check(it != weights.end(), "[", model, "] has no weight \"", name, "\"");
    const std::string expected = TypeText(it->second), got = TypeText(tensor);
    Check(got == expected, "[", model, "] expected the weight ", name, " as ",
          expected, ", got ", got);
  }
}

}  // namespace onnx_fp8
