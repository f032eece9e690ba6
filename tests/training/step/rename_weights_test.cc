// SPDX-License-Identifier: Apache-2.0
#include "training/step/rename_weights.h"

#include <gtest/gtest.h>

#include "onnx_fp8/option_error.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

StoredWeights WeightsNamed(const std::vector<std::string>& names) {
  StoredWeights weights;
  for (const std::string& name : names) {
    weights.emplace(name,
                    StoredWeight{"w.safetensors", name, Tensor::Scalar(1.0f)});
  }
  return weights;
}

// The new name of the only weight.
std::string NameAfter(const std::vector<std::string>& renames,
                      const std::string& name) {
  StoredWeights weights = WeightsNamed({name});
  RenameWeights(renames, "w.safetensors", &weights);
  EXPECT_EQ(weights.begin()->second.name, name);
  return weights.begin()->first;
}

TEST(RenameWeights, StarsStandForTexts) {
  EXPECT_EQ(NameAfter({"model.*=*"}, "model.norm.weight"), "norm.weight");
  EXPECT_EQ(NameAfter({"*=net.*"}, "a.b"), "net.a.b");
  EXPECT_EQ(NameAfter({"a=b"}, "a"), "b");
  EXPECT_EQ(NameAfter({"*.gamma=*.weight"}, "norm.gamma"), "norm.weight");
  EXPECT_EQ(NameAfter({"h.*.attn.*=layers.*.attention.*"}, "h.3.attn.q.bias"),
            "layers.3.attention.q.bias");
  EXPECT_EQ(NameAfter({"*.a.*=*+*"}, "x.a.a.y"), "x+a.y");  // the shortest
  EXPECT_EQ(NameAfter({"*.*=*"}, "x.y"), "x");
  EXPECT_EQ(NameAfter({"model.*=*"}, "model."), "");
}

TEST(RenameWeights, TheFirstMatchCounts) {
  StoredWeights weights =
      WeightsNamed({"model.embed.weight", "model.norm.weight", "head.weight"});
  RenameWeights({"model.embed.*=wte.*", "model.*=*"}, "w.safetensors",
                &weights);
  std::set<std::string> names;
  for (const auto& [name, weight] : weights) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"wte.weight", "norm.weight",
                                          "head.weight"}));
}

TEST(RenameWeights, RefusesRenamesThatDoNotFit) {
  const auto refusal = [](const std::vector<std::string>& renames,
                          const std::vector<std::string>& names) {
    StoredWeights weights = WeightsNamed(names);
    return ErrorOf([&] { RenameWeights(renames, "w.safetensors", &weights); });
  };
  EXPECT_EQ(refusal({"model.*=*"}, {"a"}),
            "[w.safetensors] `rename` model.*=* matches no tensor");
  // No name matches: the texts around a star may not overlap.
  EXPECT_EQ(refusal({"ab*ba=*"}, {"aba"}),
            "[w.safetensors] `rename` ab*ba=* matches no tensor");
  EXPECT_EQ(refusal({"*.b*.c=x"}, {"a.c.b"}),
            "[w.safetensors] `rename` *.b*.c=x matches no tensor");
  // Another rename has taken all names before.
  EXPECT_EQ(refusal({"*=x.*", "a=b"}, {"a"}),
            "[w.safetensors] `rename` a=b matches no tensor");
  EXPECT_EQ(refusal({"model.*=*"}, {"a", "model.a"}),
            "[w.safetensors] `rename` gives a and model.a one name, a");
}

TEST(RenameWeights, RefusesTextsThatAreNoRenames) {
  for (const char* text : {"", "=", "a", "a=", "=b", "a=*", "*=**"}) {
    EXPECT_THROW(CheckRenames({text}), OptionError) << text;
  }
  CheckRenames({"*=*", "a=b", "**=*"});
}

}  // namespace
}  // namespace onnx_fp8
