// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/gemm_decision.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/glob.h"
#include "graph/fp8/auto_filter.h"
#include "graph/node_notes.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

// The names that the patterns of a filter are compared with.
std::vector<std::string> LayerNames(const GemmDecision& d,
                                    const ParameterNames& names) {
  std::vector<std::string> all;
  auto add = [&](const std::string& name) {
    if (!name.empty()) all.push_back(name);
  };
  auto named = names.find(d.fqn);
  const std::string& fqn = named == names.end() ? d.fqn : named->second.fqn;
  add(fqn);
  size_t dot = fqn.rfind('.');
  if (dot != std::string::npos) add(fqn.substr(0, dot));
  if (d.fqn != fqn) add(d.fqn);
  add(d.module);
  return all;
}

bool HasPart(const std::string& part, const std::string& name) {
  return name.find(part) != std::string::npos;
}

// Applies the filter to layers, and remembers which patterns matched one.
class Filter {
 public:
  explicit Filter(const Fp8Spec& spec)
      : spec_(spec),
        fqns_(spec.filter.filter_fqns.size()),
        include_(spec.filter.include.size()),
        exclude_(spec.filter.exclude.size()),
        recipes_(spec.filter.recipes.size()) {
    for (const auto& [glob, recipe] : spec.filter.recipes) {
      globs_.push_back(glob);
    }
  }

  bool enabled() const {
    return spec_.recipe.enabled() ||
           std::ranges::any_of(spec_.filter.recipes, [](const auto& entry) {
             return entry.second.enabled();
           });
  }

  // Sets d's recipe and returns true, or sets its reason and returns false.
  bool Admits(GemmDecision* d) {
    const GemmFilter& f = spec_.filter;
    std::vector<std::string> names = LayerNames(*d, spec_.names);
    // Every pattern is tried, so that each is seen to match.
    size_t filtered = First(f.filter_fqns, names, HasPart, &fqns_);
    size_t excluded = First(f.exclude, names, MatchesGlob, &exclude_);
    size_t included = First(f.include, names, MatchesGlob, &include_);
    size_t own = First(globs_, names, MatchesGlob, &recipes_);
    d->recipe = own == kNone ? spec_.recipe : f.recipes[own].second;
    if (filtered != kNone) {
      d->reason = "filtered";
    } else if (excluded != kNone) {
      d->reason = "excluded by " + f.exclude[excluded];
    } else if (included == kNone && !f.include.empty()) {
      d->reason = "not included";
    } else if (!d->recipe.enabled()) {
      d->reason =
          own == kNone ? "recipe off" : "off for " + f.recipes[own].first;
    } else {
      return true;
    }
    return false;
  }

  // Errors: the first pattern that matched no product.
  void RequireAllMatched(const std::string& file) const {
    const GemmFilter& f = spec_.filter;
    Require(fqns_, f.filter_fqns, "`filter_fqns`", file);
    Require(include_, f.include, "`include`", file);
    Require(exclude_, f.exclude, "`exclude`", file);
    Require(recipes_, globs_, "`recipe_for`", file);
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  using Matched = std::vector<bool>;

  template <typename Match>
  static size_t First(const std::vector<std::string>& patterns,
                      const std::vector<std::string>& names, Match match,
                      Matched* matched) {
    size_t first = kNone;
    for (size_t i = 0; i < patterns.size(); ++i) {
      bool hit = std::ranges::any_of(names, [&](const std::string& name) {
        return match(patterns[i], name);
      });
      if (!hit) continue;
      (*matched)[i] = true;
      first = std::min(first, i);
    }
    return first;
  }

  static void Require(const Matched& matched,
                      const std::vector<std::string>& patterns,
                      const char* option, const std::string& file) {
    for (size_t i = 0; i < patterns.size(); ++i) {
      Check(matched[i], "[", file, "] ", option, " ", patterns[i],
            " matches no matrix product; `inspect()` lists them");
    }
  }

  const Fp8Spec& spec_;
  std::vector<std::string> globs_;  // globs of recipes
  Matched fqns_, include_, exclude_, recipes_;
};

// Delayed scales move all together, so they have one rule.
void CheckSpec(const Fp8Spec& spec) {
  auto check = [&](const Recipe& recipe) {
    std::string where = "[recipe " + RecipeText(recipe) + "]";
    CheckRecipe(recipe, where);
    if (spec.filter.speeds) CheckKnown(*spec.filter.speeds, recipe);
    const Recipe& main = spec.recipe;
    bool same = recipe.amax_history == main.amax_history &&
                recipe.most_recent == main.most_recent &&
                recipe.margin == main.margin &&
                recipe.per_micro_batch == main.per_micro_batch;
    Check(same || !recipe.Uses(Scaling::kDelayed), where,
          " expected history, algo, margin and update as those of the main "
          "recipe, ",
          RecipeText(main), ": delayed scales move all at once");
  };
  check(spec.recipe);
  for (const auto& [glob, recipe] : spec.filter.recipes) check(recipe);
}

// The reason why the product can't run in FP8 under any recipe; "" if it can.
std::string Obstacle(const GemmInfo& gemm) {
  const Node& node = *gemm.node;
  auto rank = [&](int slot) {
    const Value* value = node.in(static_cast<size_t>(slot));
    return value->shape ? value->rank() : -1;
  };
  int weight = gemm.weight_slot;
  DType dtype = gemm.weight ? gemm.weight->dtype : DType::kFloat;
  if (gemm.role == GemmRole::kNone) {
    return rank(0) == 2 && rank(1) == 2 ? "not a weight" : "attention";
  }
  if (weight >= 0 ? rank(weight) != 2 : rank(0) != 2 || rank(1) != 2) {
    return "batched weight";
  }
  if (rank(weight == 0 ? 1 : 0) == 1 || (weight == 0 && rank(1) < 0)) {
    return "not a matrix";
  }
  return dtype == DType::kFloat ? "" : Concat("computes in ", Name(dtype));
}

void Decide(GemmDecision* d, Filter& filter) {
  d->reason = Obstacle(d->gemm);
  d->possible = d->reason.empty();
  if (!d->possible) return;
  if (!filter.enabled()) {
    d->reason = "recipe off";
  } else if (!filter.Admits(d)) {
    d->recipe = Recipe();  // Admits has set the reason
  } else if (OperandOf(d->recipe, d->gemm, 0).high_precision) {
    d->reason = Concat(Name(d->gemm.role), " in high precision");
  } else {
    d->fp8 = true;
    d->reason =
        d->gemm.weight->role == Role::kFrozen ? "frozen: no wgrad" : "linear";
  }
}

// A forward product's sizes as its layer has them: M tokens, K in, N out.
struct LayerSize {
  int64_t m, k, n;
};

LayerSize SizeOf(const GemmInfo& forward) {
  // With the weight on the left the product is the layer's transpose.
  if (forward.weight_slot == 0) return {forward.n, forward.k, forward.m};
  return {forward.m, forward.k, forward.n};
}

// Puts layers that FP8 would make slower back to high precision, as whole
// layers.
void FilterBySpeed(const Fp8Spec& spec, std::vector<GemmDecision>* decisions) {
  std::map<const Value*, Prediction> layers;
  for (const GemmDecision& d : *decisions) {
    if (d.gemm.role != GemmRole::kForward || !d.recipe.enabled()) continue;
    auto [m, k, n] = SizeOf(d.gemm);
    // If a layer runs several times, the first run counts.
    if (layers.contains(d.gemm.weight)) continue;
    layers[d.gemm.weight] =
        PredictLayer(*spec.filter.speeds, d.recipe, spec.any_m ? -1 : m, k, n);
  }
  for (GemmDecision& d : *decisions) {
    auto layer = layers.find(d.gemm.weight);
    if (!d.fp8 || layer == layers.end()) continue;
    d.speedup = layer->second.speedup;
    if (layer->second.faster) continue;
    d.fp8 = false;
    d.reason = layer->second.reason;
  }
}

}  // namespace

bool Fp8Spec::Uses(Scaling scaling) const {
  return recipe.Uses(scaling) ||
         std::ranges::any_of(filter.recipes, [&](const auto& entry) {
           return entry.second.Uses(scaling);
         });
}

int64_t GemmDecision::alignment() const {
  int64_t multiple = 16;
  for (int slot : {0, 1}) {
    const OperandRecipe& o = OperandOf(recipe, gemm, slot);
    bool block = !o.high_precision && o.granularity == Granularity::kBlock;
    if (block) multiple = std::max(multiple, o.block);
  }
  return multiple;
}

const OperandRecipe& OperandOf(const Recipe& recipe, const GemmInfo& gemm,
                               int slot) {
  bool weight = slot == gemm.weight_slot;
  bool gradient = slot == gemm.grad_slot;
  switch (gemm.role) {
    case GemmRole::kDgrad:
      return gradient ? recipe[Use::kGradOutput] : recipe[Use::kWeightForDgrad];
    case GemmRole::kWgrad:
      return gradient ? recipe[Use::kGradOutputForWgrad]
                      : recipe[Use::kInputForWgrad];
    default:
      return weight ? recipe[Use::kWeight] : recipe[Use::kInput];
  }
}

std::vector<GemmDecision> DecideGemms(const std::vector<GemmInfo>& gemms,
                                      const Fp8Spec& spec) {
  CheckSpec(spec);
  std::vector<GemmDecision> decisions;
  Filter filter(spec);
  for (const GemmInfo& gemm : gemms) {
    GemmDecision& d = decisions.emplace_back();
    d.gemm = gemm;
    d.node =
        gemm.node->name.empty() ? gemm.node->out(0)->name : gemm.node->name;
    d.module = ModulePath(*gemm.node);
    if (gemm.weight) d.fqn = gemm.weight->name;
    Decide(&d, filter);
  }
  if (spec.filter.speeds) FilterBySpeed(spec, &decisions);
  return decisions;
}

void CheckPatterns(const std::vector<GemmDecision>& decisions,
                   const Fp8Spec& spec, const std::string& file,
                   const std::vector<std::string>& left_out) {
  Filter filter(spec);
  if (!filter.enabled() || decisions.empty()) return;
  for (GemmDecision d : decisions) filter.Admits(&d);
  for (const std::string& name : left_out) {
    GemmDecision d;
    d.fqn = name;
    filter.Admits(&d);
  }
  filter.RequireAllMatched(file);
}

void CheckPatterns(const Graph& model, const Fp8Spec& spec) {
  Filter filter(spec);
  if (!filter.enabled()) return;
  std::set<std::string> modules;
  for (const Node& node : model.nodes()) modules.insert(ModulePath(node));
  for (const std::string& module : modules) {
    GemmDecision d;
    d.module = module;
    filter.Admits(&d);
  }
  for (const Value* value : model.Initializers()) {
    GemmDecision d;
    d.fqn = value->name;
    filter.Admits(&d);
  }
  filter.RequireAllMatched(model.file);
}

}  // namespace onnx_fp8
