// SPDX-License-Identifier: Apache-2.0
#include "training/step/fit_memory.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/joined.h"
#include "graph/node_notes.h"
#include "graph/op_facts.h"
#include "graph/passes/recompute.h"
#include "graph/passes/recompute_auto.h"
#include "graph/passes/repeated_blocks.h"
#include "optimizers/master_format.h"
#include "providers/report/memory_report.h"
#include "training/step/place_state.h"

namespace onnx_fp8 {
namespace {

// Plans of ChooseToFit that the search makes. The last of them is the smallest
// that it can make.
constexpr int kMostPlans = 5;

// How often the search halves the workspace of attention's gradient. Small
// parts leave much of a GPU idle.
constexpr int kMostHalves = 3;

constexpr size_t kAll = std::numeric_limits<size_t>::max();

// The costs of a step before its kernels are chosen, by the names of results in
// a plan of the step. A value costs memory only if it has some in the arena: it
// may be fused away, or be state that is updated in place.
class CostsOfPlan {
 public:
  CostsOfPlan(const Plan& plan, const Hardware& hardware) {
    for (const Step& step : plan.steps) {
      const Value* first = FirstResult(*step.node);
      if (!first) continue;
      const double seconds =
          SecondsOf(*step.node, hardware.gpu, hardware.efficiency);
      all_seconds_ += seconds;
      by_name_[first->name].seconds = seconds;
      if (step.workspace >= 0) {
        const Slot& slot = plan.slots[Index(step.workspace)];
        by_name_[first->name].workspace = BytesOf(*slot.value);
      }
    }
    for (const Tenant& tenant : plan.tenants) {
      if (tenant.value->producer) {
        by_name_[tenant.value->name].bytes = tenant.bytes;
      }
    }
  }

  double all_seconds() const { return all_seconds_; }

  // This must outlive the result.
  StepCosts Costs() const {
    return {[this](const Value& value) { return At(value).bytes; },
            [this](const Node& node) {
              double seconds = 0;
              for (const Value* out : node.outputs()) {
                if (out) seconds += At(*out).seconds;
              }
              return seconds;
            },
            [this](const Node& node) {
              size_t most = 0;
              for (const Value* out : node.outputs()) {
                if (out) most = std::max(most, At(*out).workspace);
              }
              return most;
            },
            [this](const Value& value) {
              const size_t bytes = At(value).bytes;
              return bytes == 0 && value.concrete() ? BytesOf(value) : bytes;
            }};
  }

 private:
  struct CostsOfValue {
    size_t bytes = 0, workspace = 0;
    double seconds = 0;
  };

  CostsOfValue At(const Value& value) const {
    const auto known = by_name_.find(value.name);
    return known == by_name_.end() ? CostsOfValue{} : known->second;
  }

  std::unordered_map<std::string, CostsOfValue> by_name_;
  double all_seconds_ = 0;
};

// The ops of the nodes, first the one with most bytes of results.
std::vector<std::string> OpsOf(const std::unordered_set<Node*>& nodes,
                               const StepCosts& costs) {
  std::map<std::string, size_t> bytes;
  for (const Node* node : nodes) {
    for (const Value* out : node->outputs()) {
      if (out) bytes[OpName(*node)] += costs.bytes(*out);
    }
  }
  std::vector<std::string> ops;
  for (const auto& [op, size] : bytes) ops.push_back(op);
  std::ranges::stable_sort(ops, std::greater<>(),
                           [&](const std::string& op) { return bytes.at(op); });
  return ops;
}

size_t BlocksWith(const std::unordered_set<Node*>& nodes,
                  const std::vector<Node*>& forward) {
  size_t count = 0;
  for (const RepeatedBlocks& run : FindRepeatedBlocks(forward)) {
    for (const std::vector<Node*>& block : run.blocks) {
      count += std::ranges::any_of(
          block, [&](Node* node) { return nodes.contains(node); });
    }
  }
  return count;
}

// Takes all blocks behind the first `count` that have such nodes away from
// `nodes`, and copies of weights that then no node of `nodes` reads.
void KeepFirstBlocks(const std::vector<Node*>& forward, size_t count,
                     std::unordered_set<Node*>* nodes) {
  std::unordered_set<const Node*> in_blocks;
  size_t number = 0;
  for (const RepeatedBlocks& run : FindRepeatedBlocks(forward)) {
    for (const std::vector<Node*>& block : run.blocks) {
      in_blocks.insert(block.begin(), block.end());
      const bool chosen = std::ranges::any_of(
          block, [&](Node* node) { return nodes->contains(node); });
      if (!chosen || number++ < count) continue;
      for (Node* node : block) nodes->erase(node);
    }
  }
  const auto is_read = [&](const Value* out) {
    return out && std::ranges::any_of(out->uses, [&](Node* reader) {
             return nodes->contains(reader);
           });
  };
  for (size_t i = forward.size(); i-- > 0;) {
    Node* node = forward[i];
    if (in_blocks.contains(node)) continue;
    if (std::ranges::none_of(node->outputs(), is_read)) nodes->erase(node);
  }
}

// Bytes of the plan's state that are trained weights in float32, which another
// `master` than float32 would keep otherwise.
size_t FloatWeights(const Plan& plan) {
  size_t bytes = 0;
  for (const Value* value : plan.states) {
    const bool kept = value->role == Role::kParameter && value->rank() > 0;
    if (kept && value->dtype == DType::kFloat) bytes += BytesOf(*value);
  }
  return bytes;
}

// What frees memory and is the user's to decide, in numbers.
std::string HintsFor(const PaperStep& step, const SessionOptions& options,
                     bool on_device) {
  std::vector<std::string> hints;
  const auto saves = [&](const std::string& choice, size_t bytes,
                         const std::string& of) {
    hints.push_back(
        Concat(choice, " saves up to ", MemoryText(bytes), " (", of, ")"));
  };
  const bool searched = RecomputesAutomatically(options);
  if (searched && step.step.gradient_names.seed.empty()) {
    hints.push_back(
        "the step does not say where its backward begins, so nothing can be "
        "computed again");
  }
  if (!searched) {
    hints.push_back("`recompute=auto` looks for values to compute again");
  }
  const size_t gradients =
      MakeMemoryReport(step.plan, *step.step.graph, step.step.gradient_names)
          .gradients_held_bytes;
  if (gradients > 0 && step.step.kind == StepKind::kTrain && !step.is_in_file) {
    saves("`release_gradients`", gradients, "gradients of parameters");
  }
  const bool outside = OffloadsMoments(options) || !options.state_dir.empty();
  if (step.moments > 0 && !outside && !step.is_in_file) {
    saves("`moments=bfloat16`", step.moments / 2, "half of the moments");
    saves("`moments=fp8`", step.moments / 4 * 3, "three quarters of them");
  }
  const size_t weights = FloatWeights(step.plan);
  if (weights > 0 && !KeepsHalves(options.optimizer) && !step.is_in_file) {
    saves("`master=split8`", weights / 4, "a quarter of the trained weights");
    saves("`master=bfloat16`", weights / 2, "half of them");
  }
  const size_t arena = step.plan.arena_bytes;
  saves("half of the samples in `batch_size`",
        (arena - std::min(arena, gradients)) / 2, "half of the arena");
  if (options.shard.what == Sharding::kNone && !step.is_in_file) {
    saves("`shard=parameters` with two ranks", step.state / 2,
          "half of the state");
  }
  if (on_device && step.moments > 0 && !outside) {
    saves("`offload=optimizer`", step.moments,
          "moments, which the host's memory holds then");
  }
  if (!on_device && step.state > 0 && !outside) {
    saves("`state_dir`", step.state, "state, which files hold then");
  }
  return Joined(hints);
}

// How much of a plan runs as it usually does: each choice is about one number.
struct UsualExecution {
  size_t joined = 0;     // nodes that make codes for forward and backward
  size_t beside = 0;     // gathers that run beside other steps
  size_t workspace = 0;  // the largest of a gradient of attention
};

UsualExecution ExecutionOf(const Plan& plan) {
  UsualExecution found;
  for (const Step& step : plan.steps) {
    const OpFacts& facts = FactsOf(*step.node);
    found.joined += step.node->IsOurs("QuantizeBlockTranspose");
    found.beside += step.beside && facts.collective == Collective::kAllGather;
    if (step.workspace < 0 || facts.kind != OpKind::kAttentionGrad) continue;
    const Slot& slot = plan.slots[Index(step.workspace)];
    found.workspace = std::max(found.workspace, BytesOf(*slot.value));
  }
  return found;
}

// The choice with the least memory, for a plan with the usual one.
ExecutionChoice LeastExecution(const UsualExecution& usual) {
  ExecutionChoice execution = {.joins_weights = usual.joined == 0,
                               .gathers_ahead = usual.beside == 0};
  if (usual.workspace > 1) {
    execution.attention_workspace =
        std::max<size_t>(1, usual.workspace >> kMostHalves);
  }
  return execution;
}

// The choice without the parts that changed nothing in the plan.
ExecutionChoice WithoutIdleParts(ExecutionChoice choice,
                                 const UsualExecution& usual,
                                 const UsualExecution& chosen) {
  choice.joins_weights |= chosen.joined >= usual.joined;
  choice.gathers_ahead |= chosen.beside >= usual.beside;
  if (chosen.workspace >= usual.workspace) choice.attention_workspace = 0;
  return choice;
}

class MemorySearch {
 public:
  MemorySearch(const StepLimit& limit, const Hardware& hardware,
               const SessionOptions& options, const StepPlanner& plan)
      : reserve_(limit.reserve),
        hardware_(hardware),
        options_(options),
        plan_(plan) {
    fit_.is_searched = RecomputesAutomatically(options);
    fit_.limit = limit.bytes;
    fit_.reserve = limit.reserve;
  }

  MemoryFit Run() {
    chosen_ = plan_({});
    fit_.before = fit_.after = chosen_.total() + reserve_;
    if (fit_.fits()) return fit_;
    fit_.hints = HintsFor(chosen_, options_, reserve_ > 0);
    if (!fit_.is_searched) return fit_;
    const CostsOfPlan costs = CostsOf(chosen_.plan);
    seconds_ = costs.all_seconds();
    const UsualExecution usual = ExecutionOf(chosen_.plan);
    SearchExecution(usual);
    if (fit_.fits() || chosen_.step.gradient_names.seed.empty()) return fit_;
    Search(CostsOf(chosen_.plan), fit_.after);
    if (!fit_.fits()) SearchWithLeast(usual);
    if (!fit_.fits() && execution_ != ExecutionChoice{}) {
      execution_ = {};
      execution_share_ = 0;
      TryBlocks(costs, fit_.before);
    }
    return fit_;
  }

  // The plan of the fit.
  PaperStep TakeChosen() { return std::move(chosen_); }

 private:
  // A plan that is not smaller than the one before it.
  struct Rejected {
    ExecutionChoice execution;
    PaperStep step;
  };

  // Chooses how the step runs, as far as that makes the plan smaller, and makes
  // this plan. The order of gathers stays: nobody forecasts here how long a
  // step would wait for them.
  void SearchExecution(const UsualExecution& usual) {
    if (usual.joined > 0) TryExecution({.joins_weights = false});
    size_t workspace = usual.workspace;
    for (int i = 0; i < kMostHalves && workspace > 1 && !fit_.fits(); ++i) {
      ExecutionChoice execution = fit_.execution;
      execution.attention_workspace = workspace /= 2;
      if (!TryExecution(execution)) break;
    }
    execution_ = fit_.execution;
    execution_share_ = fit_.time_share;
  }

  // Whether the plan is smaller then.
  bool TryExecution(const ExecutionChoice& execution) {
    PaperStep tried = PlanWith(execution);
    if (tried.total() + reserve_ >= fit_.after) {
      rejected_.push_back({execution, std::move(tried)});
      return false;
    }
    fit_.after = tried.total() + reserve_;
    fit_.execution = execution;
    fit_.time_share = execution_share_;
    fit_.hints = HintsFor(tried, options_, reserve_ > 0);
    chosen_ = std::move(tried);
    return true;
  }

  // Once more, with all choices that change anything.
  void SearchWithLeast(const UsualExecution& usual) {
    const ExecutionChoice before = execution_;
    const ExecutionChoice all = LeastExecution(usual);
    if (all == before) return;
    PaperStep step = PlanWith(all);
    const ExecutionChoice least =
        WithoutIdleParts(all, usual, ExecutionOf(step.plan));
    if (least == before) {
      execution_ = before;
      return;
    }
    if (least != all) step = PlanWith(least);
    Search(CostsOf(step.plan), step.total() + reserve_);
  }

  CostsOfPlan CostsOf(const Plan& plan) const { return {plan, hardware_}; }

  // The plan in which nothing runs again, which may be made already.
  PaperStep Planned(const ExecutionChoice& execution) {
    const auto known =
        std::ranges::find(rejected_, execution, &Rejected::execution);
    if (known == rejected_.end()) return plan_({.execution = execution});
    PaperStep step = std::move(known->step);
    rejected_.erase(known);
    return step;
  }

  // The plan in which nothing runs again. The next plans run in this way, too.
  PaperStep PlanWith(const ExecutionChoice& execution) {
    PaperStep step = Planned(execution);
    const double seconds = CostsOf(step.plan).all_seconds();
    execution_ = execution;
    execution_share_ = seconds_ > 0 ? std::max(0.0, seconds / seconds_ - 1) : 0;
    return step;
  }

  // `now`: bytes of the plan in which nothing runs again.
  void Search(const CostsOfPlan& costs, size_t now) {
    size_t excess = now - std::min(now, fit_.limit);
    std::set<std::string> last;
    for (int i = 0; i < kMostPlans && !fit_.fits(); ++i) {
      if (i + 1 == kMostPlans) excess = kAll;
      const MemoryFit tried =
          Try(costs, false, [&](const RecomputeProblem& problem) {
            const size_t before = PeakWith(problem, {});
            return ChooseToFit(problem, before - std::min(before, excess));
          });
      if (excess == kAll) break;
      const bool stands = tried.again == last;
      last = tried.again;
      const size_t more =
          tried.after > fit_.limit ? tried.after - fit_.limit : 0;
      excess = stands || more > kAll - excess ? kAll : excess + more;
    }
    // All that helps may be far more than is needed.
    if (!fit_.fits() || excess == kAll) TryBlocks(costs, now);
  }

  // `now`: bytes of the plan in which nothing runs again. If it fits with all
  // blocks, the last ones need not run again, as far as it still fits. A block
  // more or less changes the plan by about as many bytes as another one.
  void TryBlocks(const CostsOfPlan& costs, size_t now) {
    const MemoryFit all = TryFirstBlocks(costs, kAll);
    if (!all.fits()) return;
    size_t low = 0, high = all.blocks;
    size_t over = now - std::min(now, fit_.limit);
    size_t under = fit_.limit - all.after;
    for (int i = 0; i < kMostPlans && high - low > 1; ++i) {
      const size_t middle =
          std::clamp(low + 1 + (high - low) * over / (over + under + 1),
                     low + 1, high - 1);
      const MemoryFit tried = TryFirstBlocks(costs, middle);
      if (tried.fits()) {
        high = middle;
        under = fit_.limit - tried.after;
      } else {
        low = middle;
        over = tried.after - fit_.limit;
      }
    }
  }

  // The plan in which the first `count` blocks run again.
  MemoryFit TryFirstBlocks(const CostsOfPlan& costs, size_t count) {
    const bool all = count == kAll;
    return Try(costs, all, [&](const RecomputeProblem& problem) {
      auto blocks = ChooseRecomputed({.what = {"blocks"}}, *problem.graph,
                                     problem.forward)
                        .nodes;
      if (!all) KeepFirstBlocks(problem.forward, count, &blocks);
      std::erase_if(blocks,
                    [&](Node* node) { return !problem.may.contains(node); });
      AutoRecompute found = Weigh(problem, blocks);
      found.nodes = std::move(blocks);
      return found;
    });
  }

  // Makes the plan of a choice, and takes it if it is the smallest so far, or
  // the fastest of those that fit.
  template <typename F>
  MemoryFit Try(const CostsOfPlan& costs, bool as_blocks, F choose) {
    MemoryFit tried = fit_;
    tried.as_blocks = as_blocks;
    tried.execution = execution_;
    const auto chooser = [&](RecomputeProblem problem) {
      problem.costs = costs.Costs();
      const AutoRecompute found = choose(problem);
      Describe(found, problem, &tried);
      return RecomputeChoice{found.nodes, ""};
    };
    PaperStep step = plan_({chooser, execution_});
    tried.after = step.total() + reserve_;
    const bool is_better = tried.fits() && fit_.fits()
                               ? tried.time_share < fit_.time_share
                               : tried.after < fit_.after;
    if (is_better) {
      fit_ = tried;
      fit_.hints = HintsFor(step, options_, reserve_ > 0);
      chosen_ = std::move(step);
    }
    return tried;
  }

  void Describe(const AutoRecompute& found, const RecomputeProblem& problem,
                MemoryFit* tried) const {
    tried->again.clear();
    for (const Node* node : found.nodes) {
      if (const Value* result = FirstResult(*node)) {
        tried->again.insert(result->name);
      }
    }
    tried->ops = OpsOf(found.nodes, problem.costs);
    tried->blocks = BlocksWith(found.nodes, problem.forward);
    tried->time_share =
        execution_share_ + (seconds_ > 0 ? found.seconds / seconds_ : 0);
  }

  const size_t reserve_;
  const Hardware hardware_;
  const SessionOptions& options_;
  const StepPlanner& plan_;
  MemoryFit fit_;
  PaperStep chosen_;    // of `fit_`
  double seconds_ = 0;  // of the first plan
  std::vector<Rejected> rejected_;
  // Of the plans that are tried, and the share of time that they add.
  ExecutionChoice execution_;
  double execution_share_ = 0;
};

}  // namespace

Hardware HardwareOf(Device device) {
  // Operations and bytes per second of a server's CPU, about.
  constexpr GpuPeaks kCpu = {"cpu", 1e12, 1e12, 1e12, 5e10};
  return {device == Device::kHost ? kCpu : KnownGpus().front()};
}

std::string MemoryFit::Text() const {
  std::string text = Concat("`memory`: ", plan, " needs ", MemoryText(after),
                            " of ", MemoryText(limit));
  if (reserve > 0) {
    text +=
        Concat(", ", MemoryText(reserve), " of them in reserve for libraries");
  }
  if (!chooses()) {
    return is_searched && fits() ? text + "; it fits as it is" : text;
  }
  if (!execution.joins_weights) {
    text += "; the backward makes its own codes of weights";
  }
  if (!execution.gathers_ahead) {
    text += "; no layer's parameters are gathered while another one runs";
  }
  if (execution.attention_workspace > 0) {
    text += Concat("; gradients of attention come in parts with ",
                   MemoryText(execution.attention_workspace), " of workspace");
  }
  if (!again.empty()) text += "; " + TextOfAgain();
  const double percent = 100 * time_share;
  char share[32];
  std::snprintf(share, sizeof share, percent < 10 ? "%.1f" : "%.0f", percent);
  return text + Concat(": ", MemoryText(before - after), " less, about ", share,
                       " % more time");
}

std::string MemoryFit::TextOfAgain() const {
  std::string text = Concat("`recompute", as_blocks ? "=blocks" : "",
                            "`: ", again.size(), " nodes (");
  constexpr size_t kNamed = 3;
  for (size_t i = 0; i < std::min(kNamed, ops.size()); ++i) {
    text += (i > 0 ? ", " : "") + ops[i];
  }
  if (ops.size() > kNamed) {
    text += Concat(" and ", ops.size() - kNamed, " other ops");
  }
  if (blocks > 0) text += Concat(", in ", blocks, " blocks");
  return text + ") run again in the backward";
}

std::string MemoryFit::Complaint() const {
  std::string got = Concat("one that needs ", after, " bytes");
  if (reserve > 0) got += Concat(" (", reserve, " of them in reserve)");
  if (after < before) {
    got += Concat(" with all that helps computed again, and ", before,
                  " without it");
  }
  return Concat("expected ", plan, " that fits into ", limit,
                " bytes (`memory`), got ", got, hints.empty() ? "" : "; ",
                hints);
}

void MemoryFit::Refuse() const { Fail(Complaint()); }

MemoryFit FitMemory(const StepLimit& limit, const Hardware& hardware,
                    const SessionOptions& options, const StepPlanner& plan,
                    PaperStep* chosen) {
  MemorySearch search(limit, hardware, options, plan);
  const MemoryFit fit = search.Run();
  if (chosen) *chosen = search.TakeChosen();
  return fit;
}

RecomputeChooser ChooserOf(const MemoryFit& fit) {
  return [again = fit.again](const RecomputeProblem& problem) {
    RecomputeChoice choice;
    for (Node* node : problem.forward) {
      const Value* result = FirstResult(*node);
      const bool chosen = result && again.contains(result->name);
      if (chosen && problem.may.contains(node)) choice.nodes.insert(node);
    }
    return choice;
  };
}

StepChoice ChoiceOf(const MemoryFit& fit) {
  StepChoice choice = {.execution = fit.execution};
  if (!fit.again.empty()) choice.recompute = ChooserOf(fit);
  return choice;
}

void ApplyChoice(const StepChoice& choice, StepSource* source) {
  source->choose_recomputed = choice.recompute;
  source->gathers_ahead = choice.execution.gathers_ahead;
}

std::string MemoryText(size_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value,
                kUnits[unit]);
  return text;
}

}  // namespace onnx_fp8
