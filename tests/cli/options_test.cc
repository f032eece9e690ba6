// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "cli/old_flags.h"
#include "onnx_fp8/recipe_text.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

OptimizerSpec ParseOptimizerFlags(const Arguments& arguments) {
  Flags flags("test", "");
  OptimizerFlags values;
  values.AddTo(flags);
  flags.Parse(arguments);
  return values.Make(flags);
}

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
}

TEST(OptimizerFlagsTest, TakesAll) {
  OptimizerSpec spec = ParseOptimizerFlags(
      {"--optimizer", "sgd", "--lr", "0.1", "--momentum", "0.9", "--nesterov",
       "--weight-decay", "0", "--clip-norm", "1", "--betas", "0.8,0.99",
       "--group", "*.bias=weight_decay:0,lr_scale:0.5"});
  EXPECT_EQ(spec.kind, "sgd");
  EXPECT_EQ(spec.momentum, 0.9);
  EXPECT_TRUE(spec.nesterov);
  EXPECT_EQ(spec.weight_decay, 0.0);
  EXPECT_EQ(spec.clip_norm, 1);
  EXPECT_EQ(spec.beta1, 0.8);
  EXPECT_EQ(spec.beta2, 0.99);
  ASSERT_EQ(spec.groups.size(), 1u);
  EXPECT_EQ(spec.groups[0].pattern, "*.bias");
  EXPECT_EQ(spec.groups[0].weight_decay, 0.0);
  EXPECT_EQ(spec.groups[0].lr_scale, 0.5);
}

TEST(OptimizerFlagsTest, Refuses) {
  for (const Arguments& wrong : {
           Arguments{"--betas", "0.9"},
           Arguments{"--betas", "0.9,1"},
           Arguments{"--betas", "0.9,x"},
           Arguments{"--betas", "0.9,0.9,0.9"},
           Arguments{"--lr", "-1"},
           Arguments{"--lr", "inf"},
           Arguments{"--optimizer", "lion"},
           Arguments{"--nesterov"},
           Arguments{"--group", "*.bias"},
           Arguments{"--group", "*.bias=decay:0"},
           Arguments{"--group", "*.bias=lr_scale:-1"},
       }) {
    EXPECT_THROW(ParseOptimizerFlags(wrong), UsageError) << wrong.back();
  }
}

TEST(RecipeFlagsTest, Make) {
  Flags flags("test", "");
  RecipeFlags values;
  values.AddTo(flags);
  flags.Parse({"--recipe", "delayed,history:4,algo:most_recent,margin:-1",
               "--filter-fqns", "a,b"});
  Recipe recipe = values.Make();
  EXPECT_TRUE(recipe.enabled());
  EXPECT_EQ(recipe[Use::kInput].scaling, Scaling::kDelayed);
  EXPECT_EQ(recipe.amax_history, 4);
  EXPECT_TRUE(recipe.most_recent);
  EXPECT_EQ(recipe.margin, -1);
  EXPECT_EQ(values.MakeFilter().filter_fqns,
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(RecipeFlags().Make(), Recipe());
  EXPECT_THROW(RecipeFlags{.recipe = "fp4"}.Make(), UsageError);
}

// Flags that runs of older versions saved.
TEST(OldFlagsTest, AreSettingsOfTheRecipes) {
  FlagMap flags = {{"--recipe", {"delayed,margin:1"}},
                   {"--recipe-for", {"a=off", "b=delayed,i:del8_ten_e4m3"}},
                   {"--amax-history", {"4"}},
                   {"--amax-algo", {"most_recent"}},
                   {"--lr", {"1"}}};
  TranslateOldFlags(&flags);
  auto recipe = [](const std::string& text) { return ParseRecipe(text); };
  EXPECT_EQ(flags.size(), 3u);
  EXPECT_EQ(recipe(flags["--recipe"][0]),
            recipe("delayed,history:4,algo:most_recent,margin:1"));
  EXPECT_EQ(recipe(flags["--recipe-for"][0].substr(2)),
            recipe("off,history:4,algo:most_recent"));
  EXPECT_EQ(recipe(flags["--recipe-for"][1].substr(2)),
            recipe("delayed,history:4,algo:most_recent"));
  flags = {{"--recipe", {"rowwise"}},
           {"--margin", {"-2"}},
           {"--scale-dtype", {"e8m0"}}};
  TranslateOldFlags(&flags);
  EXPECT_EQ(recipe(flags["--recipe"][0]),
            recipe("rowwise,margin:-2,scales:e8m0"));
  flags = {{"--amax-history", {"9"}}};
  TranslateOldFlags(&flags);
  EXPECT_EQ(recipe(flags["--recipe"][0]), recipe("off,history:9"));
  const FlagMap now = {{"--recipe", {"delayed"}}, {"--recipe-for", {"a"}}};
  flags = now;
  TranslateOldFlags(&flags);
  EXPECT_EQ(flags, now);
  for (const char* wrong : {"0", "x", "4,margin:1"}) {
    flags = {{"--amax-history", {wrong}}};
    EXPECT_THROW(TranslateOldFlags(&flags), Error) << wrong;
  }
}

TEST(RecipeFlagsTest, Filter) {
  Flags flags("test", "");
  RecipeFlags values;
  values.AddTo(flags);
  flags.Parse({"--include", "a*,b?", "--exclude", "c", "--recipe-for",
               "layers.0.*=off", "--recipe-for",
               "head=delayed,go:del16_ten_e4m3,margin:2"});
  GemmFilter filter = values.MakeFilter();
  EXPECT_EQ(filter.include, (std::vector<std::string>{"a*", "b?"}));
  EXPECT_EQ(filter.exclude, (std::vector<std::string>{"c"}));
  ASSERT_EQ(filter.recipes.size(), 2u);
  EXPECT_EQ(filter.recipes[0].first, "layers.0.*");
  EXPECT_FALSE(filter.recipes[0].second.enabled());
  EXPECT_EQ(filter.recipes[1].first, "head");
  EXPECT_EQ(filter.recipes[1].second,
            ParseRecipe("delayed,go:del16_ten_e4m3,margin:2"));
  for (const char* wrong : {"layers", "=off", "head=fp4", "head="}) {
    EXPECT_THROW(RecipeFlags{.recipe_for = {wrong}}.MakeFilter(), UsageError)
        << wrong;
  }
}

// A run keeps what the file said, not its name.
TEST(RecipeFlagsTest, RecipesOfFilesAreSaved) {
  TempDir dir;
  WriteText(dir / "r.json", R"({"recipe": "delayed", "margin": 1})");
  Flags flags("test", "");
  RecipeFlags values;
  values.AddTo(flags);
  flags.Parse({"--recipe", dir / "r.json", "--recipe-for",
               "a=" + (dir / "r.json"), "--recipe-for", "b=off"});
  FlagMap saved = flags.Saved();
  values.Resolve(&saved);
  const std::string label =
      "i:del16_ten_e4m3,w:del16_ten_e4m3,go:del16_ten_e5m2,margin:1";
  EXPECT_EQ(saved.at("--recipe"), std::vector<std::string>{label});
  EXPECT_EQ(saved.at("--recipe-for"),
            (std::vector<std::string>{"a=" + label, "b=off"}));
  saved = {};
  RecipeFlags{.auto_filter = "h100"}.Resolve(&saved);
  EXPECT_TRUE(saved.empty());
  RecipeFlags{.auto_filter = "x/../speeds.json"}.Resolve(&saved);
  std::string path = (std::filesystem::current_path() / "speeds.json").string();
  EXPECT_EQ(saved.at("--auto-filter"), std::vector<std::string>{path});
  saved = {};
  RecipeFlags().Resolve(&saved);
  EXPECT_TRUE(saved.empty());
  EXPECT_THROW(RecipeFlags{.recipe = dir / "none.json"}.Make(), Error);
}

TEST(LossFlagsTest, KnowsTheKinds) {
  for (const char* kind :
       {"cross_entropy", "mse", "bce_with_logits", "output:loss", ""}) {
    EXPECT_EQ((LossFlags{kind, "labels", ""}.Make().kind), kind);
  }
  for (const char* kind : {"ce", "output:", "output"}) {
    EXPECT_THROW((LossFlags{kind, "labels", ""}.Make()), UsageError);
  }
}

TEST(ShapeFlagTest, Parses) {
  auto axes = ParseShapeFlag({"batch=4", "a=b=8"});
  EXPECT_EQ(axes.at("batch"), 4);
  EXPECT_EQ(axes.at("a=b"), 8);
  for (const char* wrong : {"batch", "batch=", "batch=0", "batch=x", "=4",
                            "batch=4x", "batch=-1"}) {
    EXPECT_THROW(ParseShapeFlag({wrong}), UsageError) << wrong;
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
    EXPECT_THROW(ResolveShapes(inputs, {{wrong, 4}}), UsageError) << wrong;
  }
}

}  // namespace
}  // namespace onnx_fp8
