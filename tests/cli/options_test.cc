// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/check.h"
#include "cli/run_session.h"
#include "cli/shapes.h"
#include "onnx_fp8/recipe_text.h"
#include "tests/training/files.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

using Words = std::vector<std::string>;

Flags Parsed(const std::vector<std::string>& groups, const Words& words) {
  Flags flags({"test", "", {{"", groups}}, {}});
  flags.Parse({words});
  return flags;
}

OptimizerSpec ParseOptimizerFlags(const Words& words) {
  return OptimizerOf(Parsed({"Optimizer"}, words));
}

Flags RecipeFlags(const Words& words) { return Parsed({"Recipe"}, words); }

TEST(OptimizerFlagsTest, DefaultsArePyTorchs) {
  OptimizerSpec spec = ParseOptimizerFlags({});
  EXPECT_EQ(spec.kind, "adamw");
  EXPECT_EQ(spec.lr, 1e-3);
  EXPECT_EQ(spec.beta1, 0.9);
  EXPECT_EQ(spec.beta2, 0.999);
  EXPECT_EQ(spec.eps, 1e-8);
  EXPECT_FALSE(spec.weight_decay.has_value());
  EXPECT_EQ(spec.momentum, 0);
  EXPECT_EQ(spec.clip_norm, 0);
  EXPECT_FALSE(spec.clip_previous);
}

TEST(OptimizerFlagsTest, TakesAll) {
  OptimizerSpec spec = ParseOptimizerFlags(
      {"--optimizer", "sgd", "--lr", "0.1", "--momentum", "0.9", "--nesterov",
       "--weight-decay", "0", "--clip-norm", "1", "--group",
       "*.bias=weight_decay:0,lr_scale:0.5"});
  EXPECT_EQ(spec.kind, "sgd");
  EXPECT_EQ(spec.momentum, 0.9);
  EXPECT_TRUE(spec.nesterov);
  EXPECT_EQ(spec.weight_decay, 0.0);
  EXPECT_EQ(spec.clip_norm, 1);
  EXPECT_FALSE(spec.clip_previous);
  ASSERT_EQ(spec.groups.size(), 1u);
  EXPECT_EQ(spec.groups[0].pattern, "*.bias");
  EXPECT_EQ(spec.groups[0].weight_decay, 0.0);
  EXPECT_EQ(spec.groups[0].lr_scale, 0.5);
  const OptimizerSpec adam = ParseOptimizerFlags({"--betas", "0.8,0.99"});
  EXPECT_EQ(adam.beta1, 0.8);
  EXPECT_EQ(adam.beta2, 0.99);
}

TEST(OptimizerFlagsTest, TakesMuon) {
  MuonSettings muon = ParseOptimizerFlags({"--optimizer", "muon"}).muon;
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_TRUE(muon.nesterov);
  EXPECT_EQ(muon.coefficients, MuonSettings().coefficients);
  EXPECT_EQ(muon.steps, 5);
  muon = ParseOptimizerFlags({"--optimizer", "muon", "--momentum", "0.5",
                              "--no-nesterov", "--muon-for", "*.q,*.k",
                              "--ns-steps", "3", "--ns-coefficients",
                              "1,-2,0.5", "--adjust-lr-fn", "match_rms_adamw"})
             .muon;
  EXPECT_EQ(muon.momentum, 0.5);
  EXPECT_FALSE(muon.nesterov);
  EXPECT_EQ(muon.only, (std::vector<std::string>{"*.q", "*.k"}));
  EXPECT_EQ(muon.steps, 3);
  EXPECT_EQ(muon.coefficients[1], -2);
  EXPECT_EQ(muon.adjust_lr, "match_rms_adamw");
}

TEST(OptimizerFlagsTest, TakesTheNormOfTheStepBefore) {
  const OptimizerSpec spec =
      ParseOptimizerFlags({"--clip-norm", "0.5:previous"});
  EXPECT_EQ(spec.clip_norm, 0.5);
  EXPECT_TRUE(spec.clip_previous);
}

TEST(OptimizerFlagsTest, Refuses) {
  for (const Words& wrong : {
           Words{"--betas", "0.9"},
           Words{"--betas", "0.9,1"},
           Words{"--betas", "0.9,x"},
           Words{"--betas", "0.9,0.9,0.9"},
           Words{"--lr", "-1"},
           Words{"--lr", "inf"},
           Words{"--optimizer", "lion"},
           Words{"--nesterov"},
           Words{"--optimizer", "sgd", "--nesterov"},
           Words{"--momentum", "0.9"},
           Words{"--optimizer", "sgd", "--betas", "0.8,0.99"},
           Words{"--ns-steps", "3"},
           Words{"--optimizer", "muon", "--ns-steps", "100"},
           Words{"--optimizer", "muon", "--adjust-lr-fn", "other"},
           Words{"--optimizer", "muon", "--ns-coefficients", "1,2,x"},
           Words{"--group", "*.bias"},
           Words{"--group", "*.bias=decay:0"},
           Words{"--group", "*.bias=lr_scale:-1"},
           Words{"--clip-norm=-1"},
           Words{"--clip-norm", "inf"},
           Words{"--clip-norm", "1:"},
           Words{"--clip-norm", "1:previus"},
           Words{"--clip-norm", "1:previous:previous"},
           Words{"--clip-norm", ":previous"},
           Words{"--clip-norm", "0:previous"},
           Words{"--clip-norm", "nan:previous"},
           Words{"--clip-norm=-1:previous"},
       }) {
    EXPECT_THROW(ParseOptimizerFlags(wrong), OptionError) << wrong.back();
  }
}

TEST(RecipeFlagsTest, Make) {
  const Flags flags =
      RecipeFlags({"--recipe", "delayed,history:4,algo:most_recent,margin:-1",
                   "--filter-fqns", "a,b"});
  Recipe recipe = RecipeOf(flags);
  EXPECT_TRUE(recipe.enabled());
  EXPECT_EQ(recipe[Use::kInput].scaling, Scaling::kDelayed);
  EXPECT_EQ(recipe.amax_history, 4);
  EXPECT_TRUE(recipe.most_recent);
  EXPECT_EQ(recipe.margin, -1);
  EXPECT_EQ(FilterOf(flags).filter_fqns, (Words{"a", "b"}));
  EXPECT_EQ(RecipeOf(RecipeFlags({})), Recipe());
  EXPECT_THROW(RecipeOf(RecipeFlags({"--recipe", "fp4"})), OptionError);
}

TEST(RecipeFlagsTest, Filter) {
  const GemmFilter filter = FilterOf(RecipeFlags(
      {"--include", "a*,b?", "--exclude", "c", "--recipe-for", "layers.0.*=off",
       "--recipe-for", "head=delayed,go:del16_ten_e4m3,margin:2"}));
  EXPECT_EQ(filter.include, (Words{"a*", "b?"}));
  EXPECT_EQ(filter.exclude, (Words{"c"}));
  ASSERT_EQ(filter.recipes.size(), 2u);
  EXPECT_EQ(filter.recipes[0].first, "layers.0.*");
  EXPECT_FALSE(filter.recipes[0].second.enabled());
  EXPECT_EQ(filter.recipes[1].first, "head");
  EXPECT_EQ(filter.recipes[1].second,
            ParseRecipe("delayed,go:del16_ten_e4m3,margin:2"));
  for (const char* wrong : {"layers", "=off", "head=fp4", "head="}) {
    EXPECT_THROW(FilterOf(RecipeFlags({"--recipe-for", wrong})), OptionError)
        << wrong;
  }
}

// A run keeps what the file said, not its name.
TEST(RecipeFlagsTest, RecipesOfFilesAreSaved) {
  TempDir dir;
  WriteText(dir / "r.json", R"({"recipe": "delayed", "margin": 1})");
  Flags flags = RecipeFlags({"--recipe", dir / "r.json", "--recipe-for",
                             "a=" + (dir / "r.json"), "--recipe-for", "b=off"});
  auto resolved = [](const Flags& flags) {
    FlagMap saved = flags.Saved();
    ResolveFiles(flags, &saved);
    return saved;
  };
  const std::string label =
      "i:del16_ten_e4m3,w:del16_ten_e4m3,go:del16_ten_e5m2,margin:1";
  FlagMap saved = resolved(flags);
  EXPECT_EQ(saved.at("--recipe"), Words{label});
  EXPECT_EQ(saved.at("--recipe-for"), (Words{"a=" + label, "b=off"}));
  EXPECT_EQ(resolved(RecipeFlags({"--auto-filter", "h100"})),
            (FlagMap{{"--auto-filter", {"h100"}}}));
  saved = resolved(RecipeFlags({"--auto-filter", "x/../speeds.json"}));
  std::string path = (std::filesystem::current_path() / "speeds.json").string();
  EXPECT_EQ(saved.at("--auto-filter"), Words{path});
  EXPECT_TRUE(resolved(RecipeFlags({})).empty());
  EXPECT_THROW(RecipeOf(RecipeFlags({"--recipe", dir / "none.json"})), Error);
}

Flags LossFlags(const std::string& kind) {
  return Parsed({"Loss", "Loss options"}, {"--loss", kind});
}

TEST(LossFlagsTest, KnowsTheKinds) {
  for (const char* kind :
       {"cross_entropy", "mse", "bce_with_logits", "output:loss", ""}) {
    EXPECT_EQ(LossOf(LossFlags(kind)).kind, kind);
  }
  for (const char* kind : {"ce", "output:", "output"}) {
    EXPECT_THROW(LossOf(LossFlags(kind)), OptionError);
  }
}

TEST(ShapeFlagTest, Parses) {
  auto axes = ParseShapeFlag({"batch=4", "a=b=8"});
  EXPECT_EQ(axes.at("batch"), 4);
  EXPECT_EQ(axes.at("a=b"), 8);
  for (const char* wrong : {"batch", "batch=", "batch=0", "batch=x", "=4",
                            "batch=4x", "batch=-1"}) {
    EXPECT_THROW(ParseShapeFlag({wrong}), OptionError) << wrong;
  }
}

TEST(ShapeFlagTest, ResolvesAxes) {
  std::vector<InputInfo> inputs = {
      {"x", DType::kFloat, {-1, 3, -1}, {"batch", "", ""}},
      {"y", DType::kFloat, {2}, {}},
      {"z", DType::kFloat, {-1}, {}}};
  auto shapes = ResolveShapes(inputs, {{"batch", 4}});
  EXPECT_EQ(shapes.at("x"), (Shape{4, 3, -1}));
  EXPECT_EQ(shapes.at("y"), Shape{2});
  shapes = ResolveShapes(inputs, {{"x.2", 5}, {"z.0", 6}});
  EXPECT_EQ(shapes.at("x"), (Shape{-1, 3, 5}));
  EXPECT_EQ(shapes.at("z"), Shape{6});
  // An axis with a name is known only by that name; a fixed axis has none.
  for (const char* wrong : {"seq", "x.0", "x.1", "y.0"}) {
    EXPECT_THROW(ResolveShapes(inputs, {{wrong, 4}}), OptionError) << wrong;
  }
}

}  // namespace
}  // namespace onnx_fp8
