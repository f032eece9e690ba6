// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/gemm_decision.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "onnx_fp8/recipe_text.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// Two layers, forward and backward, and a product of activations.
constexpr char kTwoLayers[] = R"(
input x: float[2,3]
const seed: float[2,3]
param val_0: float[3,3]
param head.weight: float[3,3]
y: float[2,3] = Gemm(x, val_0)  # /blocks.0/fc/MatMul
z: float[2,3] = Gemm(y, head.weight)
dy: float[2,3] = Gemm<transB=1>(seed, head.weight)
dw: float[3,3] = Gemm<transA=1>(y, seed)
s: float[2,2] = Gemm<transB=1>(y, y)
output z
output s
output dy
output dw
)";

struct Decided {
  std::vector<GemmDecision> decisions;
  std::string error;  // of CheckPatterns

  std::vector<std::string> reasons() const {
    std::vector<std::string> all;
    for (const GemmDecision& d : decisions) {
      EXPECT_EQ(d.fp8, d.reason == "linear");
      all.push_back(d.reason);
    }
    return all;
  }
};

Decided Decide(const std::string& recipe, const GemmFilter& filter) {
  auto graph = ParseGraph(kTwoLayers);
  Fp8Spec spec = {ParseRecipe(recipe), filter, {}};
  spec.names["val_0"].fqn = "blocks.0.fc.weight";
  Decided result;
  result.decisions = DecideGemms(
      ClassifyGemms(*graph, graph->Find("seed"),
                    {{graph->Find("head.weight"), graph->Find("dw")}}),
      spec);
  try {
    CheckPatterns(result.decisions, spec, "m.onnx");
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

using Reasons = std::vector<std::string>;

TEST(GemmDecision, WithoutAFilter) {
  EXPECT_EQ(Decide("tensorwise", {}).reasons(),
            (Reasons{"linear", "linear", "linear", "linear", "not a weight"}));
  EXPECT_EQ(Decide("off", {}).reasons(),
            (Reasons{"recipe off", "recipe off", "recipe off", "recipe off",
                     "not a weight"}));
  EXPECT_EQ(Decide("rowwise_with_gw_hp", {}).reasons(),
            (Reasons{"linear", "linear", "linear", "wgrad in high precision",
                     "not a weight"}));
}

// The reasons if `why` keeps the first layer, or the second, from FP8.
Reasons First(const std::string& why) {
  return {why, "linear", "linear", "linear", "not a weight"};
}

Reasons Second(const std::string& why) {
  return {"linear", why, why, why, "not a weight"};
}

TEST(GemmDecision, FiltersByAllNamesOfALayer) {
  for (const char* part : {"val_0", "fc.weight", "blocks.0"}) {
    EXPECT_EQ(Decide("tensorwise", {.filter_fqns = {part}}).reasons(),
              First("filtered"))
        << part;
  }
  EXPECT_EQ(Decide("tensorwise", {.filter_fqns = {"ead.w"}}).reasons(),
            Second("filtered"));
  for (const char* glob : {"val_?", "blocks.0.fc", "*.fc.weight", "*.0.*"}) {
    Decided decided = Decide("tensorwise", {.exclude = {glob}});
    EXPECT_EQ(decided.reasons(), First(Concat("excluded by ", glob)));
    EXPECT_EQ(decided.error, "") << glob;
  }
  for (const char* glob : {"head", "head.weight", "h*"}) {
    Decided decided = Decide("tensorwise", {.exclude = {glob}});
    EXPECT_EQ(decided.reasons(), Second(Concat("excluded by ", glob)));
  }
}

// The node knows its module although the weight's name is lost.
TEST(GemmDecision, FiltersByTheModuleOfTheNode) {
  auto graph = ParseGraph(kTwoLayers);
  Fp8Spec spec = {ParseRecipe("tensorwise"), {.exclude = {"blocks.0.fc"}}, {}};
  auto decisions = DecideGemms(ClassifyGemms(*graph, nullptr, {}), spec);
  EXPECT_EQ(decisions[0].reason, "excluded by blocks.0.fc");
  EXPECT_EQ(decisions[1].reason, "linear");
}

TEST(GemmDecision, IncludesAndExcludes) {
  EXPECT_EQ(Decide("tensorwise", {.include = {"head"}}).reasons(),
            First("not included"));
  EXPECT_EQ(Decide("tensorwise", {.include = {"*"}, .exclude = {"x", "head"}})
                .reasons(),
            Second("excluded by head"));
}

TEST(GemmDecision, TheFirstPatternGivesTheRecipe) {
  Recipe rowwise = ParseRecipe("rowwise"), off,
         delayed = ParseRecipe("delayed");
  Decided decided = Decide(
      "tensorwise", {.recipes = {{"*.0.*", rowwise}, {"*.fc.*", delayed}}});
  EXPECT_EQ(decided.decisions[0].recipe, rowwise);
  EXPECT_EQ(decided.decisions[1].recipe, ParseRecipe("tensorwise"));
  EXPECT_EQ(decided.error, "");  // both match
  decided = Decide("tensorwise", {.exclude = {"head"}});
  EXPECT_FALSE(decided.decisions[1].recipe.enabled());
  decided = Decide("tensorwise", {.recipes = {{"head", off}}});
  EXPECT_EQ(decided.reasons(), Second("off for head"));
  // Only the layers that a pattern names.
  decided = Decide("off", {.recipes = {{"head", delayed}}});
  EXPECT_EQ(decided.reasons(), First("recipe off"));
  EXPECT_EQ(decided.decisions[1].recipe, delayed);
}

TEST(GemmDecision, PatternsThatMatchNothing) {
  auto error = [](const GemmFilter& filter) {
    return Decide("tensorwise", filter).error;
  };
  EXPECT_EQ(error({.filter_fqns = {"head", "haed"}}),
            "[m.onnx] `filter_fqns` haed matches no matrix product; "
            "`inspect()` lists them");
  EXPECT_NE(error({.include = {"*", "blocks"}}).find("`include` blocks"),
            std::string::npos);
  EXPECT_NE(error({.exclude = {"block.*"}}).find("`exclude` block.*"),
            std::string::npos);
  EXPECT_NE(
      error({.recipes = {{"layers.*", {}}}}).find("`recipe_for` layers.*"),
      std::string::npos);
  EXPECT_EQ(Decide("off", {.filter_fqns = {"haed"}}).error, "");
}

TEST(GemmDecision, DelayedScalesHaveOneRule) {
  GemmFilter filter = {.recipes = {{"head", ParseRecipe("delayed,margin:1")}}};
  EXPECT_THROW(Decide("tensorwise", filter), Error);
  EXPECT_THROW(Decide("delayed", filter), Error);
  EXPECT_EQ(Decide("delayed,margin:1", filter).error, "");
  // A layer without delayed scales does not matter.
  filter = {.recipes = {{"head", ParseRecipe("rowwise,margin:1")}}};
  EXPECT_EQ(Decide("delayed", filter).error, "");
}

TEST(GemmDecision, ImpossibleRecipesAreRefused) {
  auto graph = ParseGraph(kTwoLayers);
  Fp8Spec spec = {ParseRecipe("tensorwise")};
  spec.recipe[Use::kWeight].high_precision = true;
  EXPECT_THROW(DecideGemms({}, spec), Error);
}

TEST(GemmDecision, AlignmentFollowsTheBlocks) {
  auto of = [](const std::string& recipe) {
    std::vector<int64_t> all;
    for (const GemmDecision& d : Decide(recipe, {}).decisions) {
      if (d.fp8) all.push_back(d.alignment());
    }
    return all;
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(of("tensorwise"), (Sizes{16, 16, 16, 16}));
  EXPECT_EQ(of("blockwise"), (Sizes{128, 128, 128, 128}));
  EXPECT_EQ(of("mxfp8"), (Sizes{32, 32, 32, 32}));
  EXPECT_EQ(of("tensorwise,go_gw:dyn_blk32_e4m3"), (Sizes{16, 16, 16, 32}));
}

// Each use of an operand has its own entry.
TEST(GemmDecision, OperandOf) {
  auto decisions = Decide("tensorwise", {}).decisions;
  const GemmInfo& forward = decisions[1].gemm;
  const GemmInfo& dgrad = decisions[2].gemm;
  const GemmInfo& wgrad = decisions[3].gemm;
  ASSERT_EQ(dgrad.role, GemmRole::kDgrad);
  ASSERT_EQ(wgrad.role, GemmRole::kWgrad);
  Recipe r;
  EXPECT_EQ(&OperandOf(r, forward, 0), &r[Use::kInput]);
  EXPECT_EQ(&OperandOf(r, forward, 1), &r[Use::kWeight]);
  EXPECT_EQ(&OperandOf(r, dgrad, 0), &r[Use::kGradOutput]);
  EXPECT_EQ(&OperandOf(r, dgrad, 1), &r[Use::kWeightForDgrad]);
  EXPECT_EQ(&OperandOf(r, wgrad, 0), &r[Use::kInputForWgrad]);
  EXPECT_EQ(&OperandOf(r, wgrad, 1), &r[Use::kGradOutputForWgrad]);
}

}  // namespace
}  // namespace onnx_fp8
