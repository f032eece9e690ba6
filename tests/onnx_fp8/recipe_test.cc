// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/recipe.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "onnx_fp8/recipe_text.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

// The reason why the text is no recipe; "" if it is one.
std::string RefusalOf(const std::string& text) {
  return ErrorOf([&] { ParseRecipe(text); });
}

TEST(Recipe, PresetsAreTheseLabels) {
  const std::pair<const char*, const char*> expected[] = {
      {"off", "off"},
      {"tensorwise", "i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2"},
      {"rowwise", "i:dyn_row_e4m3_p2,w:dyn_row_e4m3_p2,go:dyn_row_e4m3_p2"},
      {"rowwise_with_gw_hp",
       "i:dyn_row_e4m3_p2,w:dyn_row_e4m3_p2,go:dyn_row_e4m3_p2,i_gw:hp,"
       "w_gi:dyn_ten_e4m3_p2,go_gw:hp"},
      {"delayed", "i:del16_ten_e4m3,w:del16_ten_e4m3,go:del16_ten_e5m2"},
      {"static", "i:sta_ten_e4m3,w:sta_ten_e4m3,go:sta_ten_e5m2"},
      {"blockwise",
       "i:dyn_blk128_e4m3,w:dyn_blk128x128_e4m3,go:dyn_blk128_e4m3,fa:none"},
      {"mxfp8",
       "i:dyn_blk32_e4m3_p2,w:dyn_blk32_e4m3_p2,go:dyn_blk32_e4m3_p2,fa:none"},
  };
  ASSERT_EQ(RecipePresets().size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    const auto& [name, label] = expected[i];
    EXPECT_STREQ(RecipePresets()[i].name, name);
    Recipe recipe = PresetRecipe(name);
    EXPECT_EQ(RecipeText(recipe), label);
    EXPECT_EQ(ParseRecipe(name), recipe) << name;
    EXPECT_EQ(ParseRecipe(label), recipe) << name;
    EXPECT_EQ(ParseRecipe(RecipeJson(recipe)), recipe) << name;
    EXPECT_TRUE(RecipeNotes(recipe).empty()) << name;
    EXPECT_EQ(recipe.enabled(), i > 0);
  }
  EXPECT_EQ(Recipe(), PresetRecipe("off"));
  EXPECT_TRUE(PresetRecipe("delayed").Uses(Scaling::kDelayed));
  EXPECT_FALSE(PresetRecipe("static").Uses(Scaling::kDelayed));
}

// torchao: only the forward accumulates fast.
TEST(Recipe, FastAccumulation) {
  for (const RecipePreset& preset : RecipePresets()) {
    const std::string name = preset.name;
    Recipe recipe = PresetRecipe(name);
    bool fast = name != "off" && name != "blockwise" && name != "mxfp8";
    EXPECT_EQ(recipe.fast_accum_forward, fast) << name;
    EXPECT_FALSE(recipe.fast_accum_dgrad || recipe.fast_accum_wgrad) << name;
  }
  Recipe recipe = ParseRecipe("blockwise,fa:dgrad+wgrad");
  EXPECT_FALSE(recipe.fast_accum_forward);
  EXPECT_TRUE(recipe.fast_accum_dgrad && recipe.fast_accum_wgrad);
}

TEST(Recipe, ItemsOverrideAPreset) {
  Recipe recipe = ParseRecipe("delayed,go:del4_ten_e4m3,margin:-1");
  EXPECT_EQ(recipe.amax_history, 4);
  EXPECT_EQ(recipe.margin, -1);
  EXPECT_EQ(recipe[Use::kGradOutput].dtype, DType::kE4M3);
  EXPECT_EQ(recipe[Use::kGradOutput], recipe[Use::kGradOutputForWgrad]);
  EXPECT_EQ(RecipeText(recipe),
            "i:del4_ten_e4m3,w:del4_ten_e4m3,go:del4_ten_e4m3,margin:-1");
  // A second use that differed from the first stays.
  recipe = ParseRecipe("rowwise_with_gw_hp,i:dyn_ten_e4m3");
  EXPECT_TRUE(recipe[Use::kInputForWgrad].high_precision);
  // An item for the second use counts wherever it stands.
  recipe = ParseRecipe("tensorwise,go_gw:dyn_ten_e4m3,go:dyn_row_e4m3");
  EXPECT_EQ(recipe[Use::kGradOutput].granularity, Granularity::kRow);
  EXPECT_EQ(recipe[Use::kGradOutputForWgrad].granularity, Granularity::kTensor);
  recipe = ParseRecipe("mxfp8,round:floor,scales:e8m0,update:micro");
  EXPECT_EQ(recipe[Use::kWeightForDgrad].rounding, ScaleRounding::kFloor);
  EXPECT_TRUE(recipe.e8m0_scales && recipe.per_micro_batch);
  recipe = ParseRecipe("rowwise,tr:requantize,algo:most_recent,history:3");
  EXPECT_EQ(recipe.transposition, Transposition::kRequantize);
  EXPECT_TRUE(recipe.most_recent);
  EXPECT_EQ(recipe.amax_history, 3);
}

TEST(Recipe, ReadsJson) {
  EXPECT_EQ(ParseRecipe(R"({"recipe": "rowwise"})"), PresetRecipe("rowwise"));
  EXPECT_EQ(
      ParseRecipe(
          R"({"grad_output": "dyn_row_e5m2_p2", "recipe": "rowwise",
              "fast_accum": "none", "amax_history": 8, "scale_dtype": "e8m0"})"),
      ParseRecipe("rowwise,go:dyn_row_e5m2_p2,fa:none,history:8,scales:e8m0"));
  TempDir dir;
  std::ofstream(dir / "mine.json") << R"({"recipe": "delayed", "margin": 2})";
  EXPECT_EQ(ParseRecipe(dir / "mine.json"), ParseRecipe("delayed,margin:2"));
  std::ofstream(dir / "bad.json") << R"({"recipe": "delayed", "marign": 2})";
  EXPECT_EQ(
      RefusalOf(dir / "bad.json"),
      "[" + (dir / "bad.json") +
          "] expected one of input, weight, grad_output, input_for_wgrad, "
          "weight_for_dgrad, grad_output_for_wgrad, fast_accum, transposition, "
          "scale_dtype, amax_algo, amax_history, margin, scale_update, "
          "rounding, got \"marign\"");
  EXPECT_NE(RefusalOf(dir / "none.json").find("none.json"), std::string::npos);
}

TEST(Recipe, OfLayers) {
  const std::string text =
      R"({"layers": {"b.*": "rowwise,i:dyn_ten_e4m3", "a": "off"},
          "recipe": "delayed", "margin": 2})";
  const LayerRecipes all = ParseLayerRecipes(text);
  EXPECT_EQ(all.recipe, ParseRecipe("delayed,margin:2"));
  ASSERT_EQ(all.layers.size(), 2u);
  EXPECT_EQ(all.layers[0].first, "b.*");
  EXPECT_EQ(all.layers[0].second, ParseRecipe("rowwise,i:dyn_ten_e4m3"));
  EXPECT_EQ(all.layers[1].second, Recipe());
  EXPECT_EQ(RefusalOf(text),
            "[recipe] expected one recipe, got recipes of layers");
  EXPECT_TRUE(ParseLayerRecipes("rowwise").layers.empty());
  EXPECT_NE(RefusalOf(R"({"layers": {"a": "fp4"}, "recipe": "off"})")
                .find("[recipe] layers: a: expected off, tensorwise"),
            std::string::npos);
  EXPECT_EQ(RefusalOf(R"({"layers": ["a"], "recipe": "off"})"),
            "[recipe] layers: expected an object of layers and their recipes, "
            "got array");
  EXPECT_EQ(RefusalOf(R"({"layers": {"a": 1}, "recipe": "off"})"),
            "[recipe] layers: a: expected a recipe as text, got number");
}

class RandomRecipe {
 public:
  explicit RandomRecipe(uint64_t seed) : random_(seed) {}

  // The recipe need not be a possible one.
  Recipe Draw() {
    Recipe r;
    OperandRecipe* pairs[][2] = {
        {&r[Use::kInput], &r[Use::kWeight]},
        {&r[Use::kGradOutput], &r[Use::kWeightForDgrad]},
        {&r[Use::kGradOutputForWgrad], &r[Use::kInputForWgrad]}};
    for (auto& [a, b] : pairs) {
      if (Pick(4) == 0) continue;
      *a = Operand();
      *b = Operand();
    }
    r.fast_accum_forward = Pick(2);
    r.fast_accum_dgrad = Pick(2);
    r.fast_accum_wgrad = Pick(2);
    if (Pick(2)) r.transposition = Transposition::kRequantize;
    r.e8m0_scales = Pick(4) == 0;
    r.amax_history = 1 + Pick(20);
    r.most_recent = Pick(2);
    r.margin = Pick(5) - 2;
    r.per_micro_batch = Pick(2);
    return r;
  }

 private:
  int Pick(int n) {
    return static_cast<int>(random_() % static_cast<uint64_t>(n));
  }

  OperandRecipe Operand() {
    OperandRecipe o;
    o.high_precision = false;
    if (Pick(2)) o.dtype = DType::kE5M2;
    o.granularity = static_cast<Granularity>(Pick(3));
    o.scaling = static_cast<Scaling>(Pick(3));
    o.rounding = static_cast<ScaleRounding>(Pick(3));
    if (o.granularity == Granularity::kBlock) {
      o.block = 1 << Pick(9);
      o.square = Pick(2);
    }
    return o;
  }

  std::mt19937_64 random_;
};

TEST(Recipe, RandomOnesAreReadAsTheyArePrinted) {
  RandomRecipe random(1);
  int good = 0;
  for (int i = 0; i < 10000; ++i) {
    Recipe recipe = random.Draw();
    std::string text = RecipeText(recipe);
    bool possible = true;
    try {
      CheckRecipe(recipe, "");
    } catch (const Error&) {
      possible = false;
    }
    if (!possible) {
      EXPECT_NE(RefusalOf(text), "") << text;
      EXPECT_NE(RefusalOf(RecipeJson(recipe)), "") << text;
      continue;
    }
    ++good;
    EXPECT_EQ(ParseRecipe(text), recipe) << text;
    EXPECT_EQ(RecipeText(ParseRecipe(text)), text);
    EXPECT_EQ(ParseRecipe(RecipeJson(recipe)), recipe) << text;
  }
  EXPECT_GT(good, 150);
}

TEST(Recipe, ErrorsSayWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"fp4",
       "expected off, tensorwise, rowwise, rowwise_with_gw_hp, delayed, "
       "static, "
       "blockwise, mxfp8, a .json file or items as in i:dyn_ten_e4m3, got "
       "\"fp4\""},
      {"", "got \"\""},
      {"rowwise,", "expected KEY:VALUE, got \"\""},
      {"rowwise,fast", "expected KEY:VALUE, got \"fast\""},
      {"rowwise,x:1",
       "expected one of i, w, go, i_gw, w_gi, go_gw, fa, tr, scales, algo, "
       "history, margin, update, round, got \"x\""},
      {"rowwise,fa:fwd,fa:none", "fa: expected once, got twice"},
      {"i:dyn_ten_e4m3,w:dyn_ten_e4m3",
       "expected go or a recipe to begin with, got none"},
      {"tensorwise,i:dyn",
       "i: expected hp or SCALING_GRANULARITY_FORMAT as in dyn_ten_e4m3, got "
       "\"dyn\""},
      {"tensorwise,i:now_ten_e4m3",
       "i: expected dyn, delN or sta as its first word, got \"now_ten_e4m3\""},
      {"tensorwise,i:delx_ten_e4m3",
       "i: expected delN with a number of steps as its first word"},
      {"tensorwise,i:dyn_col_e4m3",
       "i: expected ten, row, blkN or blkNxN as its second word"},
      {"tensorwise,i:dyn_blk8x9_e4m3", "i: expected blkN or blkNxN"},
      {"tensorwise,i:dyn_blk_e4m3", "i: expected blkN or blkNxN"},
      {"tensorwise,i:dyn_ten_e4m4",
       "i: expected e4m3 or e5m2 as its third word"},
      {"tensorwise,i:dyn_ten_e4m3_up",
       "i: expected p2 or floor as its last word"},
      {"tensorwise,fa:all",
       "fa: expected none or fwd, dgrad and wgrad joined by +, got \"all\""},
      {"tensorwise,tr:no", "tr: expected hp or requantize, got \"no\""},
      {"tensorwise,round:up", "round: expected none, p2 or floor, got \"up\""},
      {"delayed,margin:x", "margin: expected an integer, got \"x\""},
      {"delayed,margin:101", "margin: expected -100 to 100, got 101"},
      {"delayed,history:0", "history: expected 1 to 4096 steps, got 0"},
      {"delayed,i:del4_ten_e4m3,w:del5_ten_e4m3",
       "w: expected one length for all amax histories, got 5 and 4"},
      // Impossible combinations.
      {"delayed,i:del16_row_e4m3",
       "i: expected dynamic scaling with row scales, got delayed"},
      {"static,w:sta_row_e4m3",
       "w: expected dynamic scaling with row scales, got static"},
      {"blockwise,w:del16_blk128x128_e4m3",
       "w: expected dynamic scaling with block scales, got delayed"},
      {"delayed,round:p2",
       "i: expected dynamic scaling where scales are rounded, got delayed"},
      {"tensorwise,scales:e8m0",
       "scales: e8m0 holds powers of two: expected _p2 or _floor at i"},
      {"rowwise,round:floor", "i: expected blocks with _floor, got rows"},
      {"tensorwise,round:floor",
       "i: expected blocks with _floor, got a whole tensor"},
      {"blockwise,i:dyn_blk0_e4m3", "expected blocks of 1 to 65536, got 0"},
      {"tensorwise,w:hp",
       "forward: weight (w) is in high precision, input (i) is not"},
      {"tensorwise,w_gi:hp",
       "dgrad: weight (w_gi) is in high precision, grad_output (go) is not"},
      {"rowwise_with_gw_hp,i_gw:dyn_row_e4m3_p2",
       "wgrad: grad_output (go_gw) is in high precision, input (i_gw) is not"},
      {"{", "[recipe] expected a recipe as JSON, got another text"},
      {"[1]", "got \"[1]\""},
      {"{\"recipe\": 1.5}",
       "[recipe] recipe: expected a string or an integer, got 1.5"},
      {"{\"recipe\": \"fp4\"}", "mxfp8, or items as in"},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_NE(RefusalOf(text).find(words), std::string::npos)
        << text << "\n"
        << RefusalOf(text);
  }
}

TEST(Recipe, NotesWhatCudaLacks) {
  auto notes = [](const std::string& text) {
    std::string all;
    for (const std::string& note : RecipeNotes(ParseRecipe(text))) {
      all += note + "\n";
    }
    return all;
  };
  EXPECT_EQ(notes("tensorwise,w_gi:dyn_ten_e5m2"),
            "dgrad: CUDA has no product of e5m2 and e5m2\n");
  EXPECT_EQ(notes("blockwise,i:dyn_blk128x128_e4m3"),
            "forward: CUDA has no product of two operands in square blocks\n");
  EXPECT_EQ(notes("blockwise,i:dyn_blk64_e4m3,i_gw:dyn_blk128_e4m3"),
            "forward: CUDA knows blocks of 1x128, 128x128 and 1x32\n");
  EXPECT_EQ(notes("delayed,tr:requantize"),
            "tr:requantize changes nothing: no operand has scales that can't "
            "be transposed\n");
  EXPECT_EQ(notes("rowwise,tr:requantize"), "");
  EXPECT_EQ(notes("rowwise_with_gw_hp,tr:requantize"), "");
}

}  // namespace
}  // namespace onnx_fp8
