// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "base/check.h"
#include "onnx_fp8/cast_statistics.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

struct Role {
  const char* gemm;
  Use uses[2];
  const char* operands[2];
};

constexpr Role kRoles[] = {
    {"forward", {Use::kInput, Use::kWeight}, {"input", "weight"}},
    {"dgrad",
     {Use::kGradOutput, Use::kWeightForDgrad},
     {"grad_output", "weight"}},
    {"wgrad",
     {Use::kGradOutputForWgrad, Use::kInputForWgrad},
     {"grad_output", "input"}},
};

double LesserSqnr(const MeasuredCast& cast) {
  return std::min(cast.numbers.Sqnr(), cast.numbers.LineSqnr());
}

std::string DecibelText(double sqnr) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f dB", sqnr);
  return text;
}

// The noise of the cast that the GEMM reads: its own copy, or the copy of an
// earlier GEMM. Infinite: there is none.
double OperandSqnr(const std::vector<MeasuredCast>& casts,
                   const std::string& fqn, const std::string& gemm,
                   const std::string& operand) {
  double own = std::numeric_limits<double>::infinity(), other = own;
  bool has_own = false;
  for (const MeasuredCast& cast : casts) {
    if (cast.fqn != fqn || cast.operand != operand) continue;
    double& sqnr = cast.gemm == gemm ? own : other;
    has_own |= cast.gemm == gemm;
    sqnr = std::min(sqnr, LesserSqnr(cast));
  }
  return has_own ? own : other;
}

LayerTrial TrialOf(const std::vector<MeasuredCast>& casts,
                   const std::string& fqn, const Recipe& recipe) {
  LayerTrial trial;
  for (const Role& role : kRoles) {
    std::optional<double> sqnr;
    for (const MeasuredCast& cast : casts) {
      if (!cast.is_product() || cast.fqn != fqn || cast.gemm != role.gemm) {
        continue;
      }
      sqnr = std::min(sqnr.value_or(LesserSqnr(cast)), LesserSqnr(cast));
    }
    if (!sqnr) continue;
    ProductNoise noise = {role.gemm, *sqnr, "",
                          std::numeric_limits<double>::infinity()};
    for (size_t i = 0; i < 2; ++i) {
      if (recipe[role.uses[i]].high_precision) continue;
      const double of = OperandSqnr(casts, fqn, role.gemm, role.operands[i]);
      if (of >= noise.operand_sqnr) continue;
      noise.operand = role.operands[i];
      noise.operand_sqnr = of;
    }
    trial.products.push_back(noise);
  }
  return trial;
}

bool Holds(const LayerTrial& trial, double sqnr) {
  return !trial.products.empty() &&
         std::ranges::all_of(trial.products, [&](const ProductNoise& product) {
           return product.sqnr >= sqnr;
         });
}

// The recipe with the products that don't hold in high precision.
Recipe WithoutNoisyProducts(Recipe recipe, const LayerTrial& trial,
                            double sqnr) {
  for (const ProductNoise& product : trial.products) {
    if (product.sqnr >= sqnr) continue;
    for (const Role& role : kRoles) {
      if (product.gemm != role.gemm) continue;
      for (Use use : role.uses) recipe[use] = OperandRecipe();
    }
  }
  return recipe;
}

bool IsPossible(const Recipe& recipe) {
  try {
    CheckRecipe(recipe, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

int64_t HoldingProducts(const LayerTrial& trial, double sqnr) {
  return std::ranges::count_if(
      trial.products, [&](const ProductNoise& p) { return p.sqnr >= sqnr; });
}

// "wgrad has 12.1 dB, by its grad_output (14.0 dB)".
std::string NoiseText(const LayerTrial& trial, double sqnr) {
  std::string text;
  for (const ProductNoise& product : trial.products) {
    if (product.sqnr >= sqnr) continue;
    text += Concat(text.empty() ? "" : ", ", product.gemm, " has ",
                   DecibelText(product.sqnr));
    if (!product.operand.empty()) {
      text += Concat(" (", product.operand, ": ",
                     DecibelText(product.operand_sqnr), ")");
    }
  }
  return text;
}

void Choose(const SensitivitySpec& spec, LayerSensitivity* layer) {
  std::string reason;
  for (size_t i = 0; i < layer->trials.size(); ++i) {
    const LayerTrial& trial = layer->trials[i];
    if (Holds(trial, spec.sqnr)) {
      layer->chosen = spec.recipes[i].recipe;
      layer->reason = reason;
      return;
    }
    const std::string noise = trial.products.empty()
                                  ? "it casts nothing"
                                  : NoiseText(trial, spec.sqnr);
    reason +=
        Concat(reason.empty() ? "" : "; ", spec.recipes[i].name, ": ", noise);
  }
  layer->reason = reason;
  int64_t most = 0;
  for (size_t i = 0; i < spec.recipes.size(); ++i) {
    const int64_t holding = HoldingProducts(layer->trials[i], spec.sqnr);
    const Recipe recipe = WithoutNoisyProducts(spec.recipes[i].recipe,
                                               layer->trials[i], spec.sqnr);
    if (holding <= most || !IsPossible(recipe)) continue;
    most = holding;
    layer->chosen = recipe;
  }
}

class Trials {
 public:
  Trials(const SensitivitySpec& spec, const Dataset& data)
      : spec_(spec), options_(spec.options) {
    options_.filter.recipes.clear();
    options_.model_only = true;
    options_.profile.clear();
    options_.timeline.clear();
    options_.dump_passes.clear();
    for (int64_t i = 0; i < spec.batches; ++i) {
      batches_.push_back(data.Batch(i));
    }
  }

  std::optional<Sensitivity> Run() {
    FindLayers();
    const auto recipes = std::ssize(spec_.recipes);
    total_ = 1 + recipes * std::ssize(result_.layers);
    if (!Goes(0)) return std::nullopt;
    result_.loss = Measure("", Recipe()).loss;
    for (LayerSensitivity& layer : result_.layers) {
      for (int64_t i = 0; i < recipes; ++i) {
        if (!Goes(1)) return std::nullopt;
        if (!AddTrial(spec_.recipes[static_cast<size_t>(i)].recipe, &layer)) {
          continue;
        }
        done_ += recipes - i - 1;
        break;
      }
      Choose(spec_, &layer);
    }
    return std::move(result_);
  }

 private:
  struct Measured {
    double loss = 0;  // the mean over the batches
    std::vector<MeasuredCast> casts;
  };

  // Reports that so many trials more are done, and that another one begins.
  bool Goes(int64_t more) {
    done_ += more;
    return !spec_.progress || spec_.progress(done_, total_);
  }

  // One layer in FP8; "": none.
  Measured Measure(const std::string& fqn, const Recipe& recipe) const {
    SessionOptions options = options_;
    options.recipe = Recipe();
    if (!fqn.empty()) {
      options.filter.recipes = {{fqn, recipe}};
      options.stats = "every=1";
    }
    auto session = TrainingSession::Create(options);
    Measured all;
    for (const TensorMap& batch : batches_) {
      const GradientResult result =
          session->Gradients(batch, false, !fqn.empty());
      all.loss += result.loss / static_cast<double>(batches_.size());
      JoinCasts(result.casts, &all.casts);
    }
    return all;
  }

  // The layers that the first recipe runs in FP8.
  void FindLayers() {
    SessionOptions options = options_;
    options.recipe = spec_.recipes[0].recipe;
    options.stats = "every=1";
    auto session = TrainingSession::Create(options);
    const auto casts = session->Gradients(batches_[0], false, true).casts;
    for (const MeasuredCast& cast : casts) {
      if (std::ranges::count(result_.layers, cast.fqn,
                             &LayerSensitivity::fqn) == 0) {
        result_.layers.emplace_back().fqn = cast.fqn;
      }
    }
  }

  // Whether no other recipe need be tried.
  bool AddTrial(const Recipe& recipe, LayerSensitivity* layer) {
    const Measured measured = Measure(layer->fqn, recipe);
    LayerTrial& trial =
        layer->trials.emplace_back(TrialOf(measured.casts, layer->fqn, recipe));
    trial.loss_change = measured.loss - result_.loss;
    return spec_.first_only && Holds(trial, spec_.sqnr);
  }

  const SensitivitySpec& spec_;
  SessionOptions options_;
  std::vector<TensorMap> batches_;
  Sensitivity result_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

std::optional<Sensitivity> MeasureSensitivity(const SensitivitySpec& spec,
                                              const Dataset& data) {
  for (const ComparedRecipe& named : spec.recipes) {
    Check(named.recipe.enabled() && !named.recipe.Uses(Scaling::kDelayed) &&
              !named.recipe.Uses(Scaling::kStatic),
          "[recipe ", named.name,
          "] expected FP8 with dynamic scales: others depend on earlier "
          "steps, or are given");
  }
  return Trials(spec, data).Run();
}

}  // namespace onnx_fp8
