// SPDX-License-Identifier: Apache-2.0
#include "training/step/session_checks.h"

#include <cmath>
#include <set>

#include "base/check.h"
#include "graph/fp8/gemm_decision.h"
#include "onnx_fp8/option_error.h"
#include "onnx_fp8/recipe_text.h"
#include "optimizers/loss_scale.h"
#include "optimizers/optimizer.h"
#include "optimizers/own_optimizer.h"
#include "training/step/loss.h"
#include "training/step/loss_values.h"

namespace onnx_fp8 {
namespace {

// Gradients that are released at once have no loss scale and no sums over
// micro-batches.
void CheckRelease(const SessionOptions& options) {
  if (!options.optimizer.release_gradients) return;
  if (options.grad_accum > 1) {
    throw OptionError(
        Concat("`release_gradients`: expected `grad_accum` 1, because sums of "
               "gradients stay in memory, got ",
               options.grad_accum));
  }
  if (options.dtype == DType::kFloat16) {
    throw OptionError(
        "`release_gradients`: expected `dtype` float32 or bfloat16, because "
        "the loss scale of float16 follows all gradients, got float16");
  }
}

// Ranks that divide parameters have no whole codes between steps.
void CheckPrimaryWeights(const SessionOptions& options) {
  const std::string& kept = options.primary_weights;
  if (kept == "float") return;
  if (kept != "fp8") {
    throw OptionError(
        Concat("`primary_weights`: expected float or fp8, got ", kept));
  }
  if (options.shard.what == Sharding::kParameters) {
    throw OptionError(
        "`primary_weights=fp8`: expected `shard` none, optimizer or gradients, "
        "because each rank keeps whole codes from step to step, got "
        "parameters; `shard=optimizer` divides all but the codes");
  }
}

void CheckAverages(const SessionOptions& options, bool is_step) {
  if (options.eval_with == "weights") return;
  if (options.eval_with != "ema") {
    throw OptionError(Concat("`eval_with`: expected weights or ema, got ",
                             options.eval_with));
  }
  if (is_step) {
    throw OptionError(
        "`eval_with=ema`: expected a model, got a training step in a file, "
        "which reads its weights");
  }
  if (options.optimizer.ema == 0) {
    throw OptionError(
        "`eval_with=ema`: expected a run with `ema`, got one that keeps no "
        "averages of weights");
  }
}

}  // namespace

void CheckSettings(const SessionOptions& options, bool is_step) {
  CheckLossScaling(options.loss_scaling);
  CheckRelease(options);
  CheckPrimaryWeights(options);
  CheckAverages(options, is_step);
}

void CheckMetrics(const SessionOptions& options, const LossSpec& loss) {
  const LossKind* kind = FindLoss(loss.kind);
  for (const std::string& metric : options.metrics) {
    if (metric != "accuracy" && metric != "perplexity") {
      throw OptionError(Concat(
          "`metrics`: expected accuracy or perplexity, got \"", metric, "\""));
    }
    const bool known =
        metric == "accuracy" ? kind && kind->hits : kind && IsLikelihood(loss);
    if (known || loss.kind.empty()) continue;
    throw OptionError(
        Concat("`metrics`: expected numbers of the loss, got ", metric,
               ", which is not known of ",
               kind ? loss.kind : "a model that computes its own loss",
               kind && kind->likelihood ? " with `class_weights` or "
                                          "`label_smoothing`"
                                        : ""));
  }
}

void CheckFrozen(const SessionOptions& options, bool is_step,
                 const Mesh& mesh) {
  const std::string& frozen = options.frozen;
  if (frozen == "float32") return;
  if (frozen != "bfloat16" && frozen != "fp8") {
    throw OptionError(
        Concat("`frozen`: expected float32, bfloat16 or fp8, got ", frozen));
  }
  if (is_step) {
    throw OptionError(
        Concat("`frozen=", frozen,
               "`: expected a model, got a training step in a file, which "
               "holds its weights as it reads them"));
  }
  if (mesh.tp > 1) {
    throw OptionError(
        Concat("`frozen=", frozen,
               "`: expected ranks that keep whole frozen weights (tp=1), got "
               "tp=",
               mesh.tp));
  }
}

void RequireWholeMatrices(const OptimizerSpec& spec, const Mesh& mesh) {
  if (RestOf(spec).empty() || mesh.tp == 1) return;
  throw OptionError(
      Concat("`optimizer=", spec.kind,
             "`: expected ranks that compute whole layers (tp=1), because an "
             "update reads its whole matrix, got tp=",
             mesh.tp, "; ranks of the axis dp may divide it (`shard`)"));
}

void CheckOptimizerFile(const SessionOptions& options, const Mesh& mesh) {
  const std::string& kind = options.optimizer.kind;
  if (!IsOptimizerFile(kind)) return;
  auto refuse = [&](const std::string& option) {
    throw OptionError(
        Concat("`optimizer=", kind,
               "`: expected ranks and devices that keep whole states, because "
               "the file alone knows how they are divided, got ",
               option));
  };
  if (mesh.tp > 1) refuse(Concat("tp=", mesh.tp));
  if (options.shard.what != Sharding::kNone) refuse("`shard`");
  if (options.offload != "none") refuse("`offload`");
}

void CheckOptions(const ProviderOptions& options, const MeshRanks* ranks) {
  const char* choice = FirstChoice(options);
  if (!choice || !ranks || ranks->mesh().tp == 1) return;
  throw OptionError(Concat(
      choice, ": expected ranks that compute whole layers (tp=1), got tp=",
      ranks->mesh().tp));
}

void CheckStats(const SessionOptions& options, ExecutionProvider& provider) {
  if (options.stats.empty()) return;
  if (provider.Kernels().Find(kDomain, "CastStatistics")) return;
  throw OptionError(
      Concat("`stats`: expected a provider that measures casts, cpu, got ",
             options.provider, ", which has no kernel for it"));
}

void CheckDump(const SessionOptions& options, const MeshRanks* ranks) {
  if (options.dump.empty() || !ranks) return;
  throw OptionError(
      "`dump`: expected one process, got several ranks of `mesh`: each has a "
      "part of the tensors, and nothing puts the parts together yet");
}

void CheckMeasures(const SessionOptions& options, const MeshRanks* ranks) {
  if (options.stats.empty()) {
    throw OptionError("`stats` is missing: it says which layers are measured");
  }
  if (ranks) {
    throw OptionError(
        "`stats`: expected one process for an evaluation that measures casts, "
        "got several ranks");
  }
}

void CheckTimeline(const SessionOptions& options, ExecutionProvider& provider) {
  if (!options.profile.empty() || options.profile_steps) {
    throw OptionError(
        "`timeline`: expected no profile beside it, which waits for each "
        "kernel");
  }
  if (options.timeline_steps < 1) {
    throw OptionError(Concat("`timeline_steps`: expected at least 1, got ",
                             options.timeline_steps));
  }
  Check(provider.activities() != nullptr,
        "expected a provider that was made with provider_options.timeline");
}

void CheckPatterns(const StepSource& source) {
  if (source.step) return;  // settings of its file
  std::set<std::string> trained;
  for (const Value* value : source.model->Initializers()) {
    if (value->role != Role::kParameter) continue;
    trained.insert(value->name);
    auto known = source.fp8.names.find(value->name);
    if (known != source.fp8.names.end()) trained.insert(known->second.fqn);
  }
  CheckGroups(source.optimizer, trained, source.model->file);
  CheckPatterns(*source.model, source.fp8);
}

void CheckAccumulation(const SessionOptions& options, const LossSpec& loss) {
  const std::string& by = options.grad_accum_by;
  if (by == "batches") return;
  if (by != "tokens") {
    throw OptionError(
        Concat("`grad_accum_by`: expected batches or tokens, got ", by));
  }
  if (!loss.kind.empty() && !FindLoss(loss.kind)) {
    throw OptionError(
        Concat("`grad_accum_by=tokens`: expected a loss of the table, got ",
               loss.kind, ", whose mean may be over any number of labels"));
  }
  if (Fp8Spec{options.recipe, options.filter}.Uses(Scaling::kStatic)) {
    throw OptionError(
        "`grad_accum_by=tokens`: expected no static scales, because they are "
        "made for gradients of means, got " +
        RecipeText(options.recipe));
  }
}

void CheckRate(double lr) {
  if (std::isfinite(static_cast<float>(lr)) && lr >= 0) return;
  throw OptionError(Concat("`lr`: expected a number of at least 0, got ", lr));
}

bool HasLabel(const LossSpec& loss, const TensorMap& feeds) {
  return !FindLoss(loss.kind) || feeds.contains(loss.label);
}

bool CountsNoLabel(const StepGraph& step, const TensorMap& feeds, float loss,
                   const TensorMap& outputs) {
  if (!step.counts_labels || !std::isnan(loss)) return false;
  auto label = feeds.find(step.loss_spec.label);
  auto output = outputs.find(step.loss_spec.logits);
  return label != feeds.end() && output != outputs.end() &&
         CountLabels(step.loss_spec, output->second, label->second) == 0;
}

}  // namespace onnx_fp8
