// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/ep_options.h"

#include <gtest/gtest.h>

#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

std::string Complaint(const std::string& name, const std::string& value) {
  try {
    ParseEpOptions({{name, value}});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(EpOptions, AreRead) {
  EpOptions options = ParseEpOptions({{"recipe", "rowwise"},
                                      {"filter_fqns", "head"},
                                      {"include", "a*,b*"},
                                      {"exclude", ""},
                                      {"loss_chunk", "5000000000"},
                                      {"device", "cpu"},
                                      {"threads", "3"},
                                      {"pool", "own"}});
  EXPECT_EQ(options.spec.recipe, PresetRecipe("rowwise"));
  using Words = std::vector<std::string>;
  EXPECT_EQ(options.spec.filter.filter_fqns, Words{"head"});
  EXPECT_EQ(options.spec.filter.include, (Words{"a*", "b*"}));
  EXPECT_EQ(options.spec.filter.exclude, Words{});
  EXPECT_EQ(options.loss_chunk, 5000000000);
  EXPECT_EQ(ParseEpOptions({}).loss_chunk, -1);
  EXPECT_EQ(options.device, "cpu");
  EXPECT_EQ(options.threads.count, 3);
  EXPECT_TRUE(options.threads.own);
  EXPECT_FALSE(ParseEpOptions({}).spec.recipe.enabled());
  EXPECT_FALSE(ParseEpOptions({{"pool", "session"}}).threads.own);
}

TEST(EpOptions, BadOnesAreNamed) {
  EXPECT_EQ(Complaint("thread", "1"),
            "[option ep.onnx_fp8.thread] expected one of recipe, filter_fqns, "
            "include, exclude, scales, loss_chunk, threads, device, pool");
  EXPECT_NE(Complaint("device", "tpu")
                .find("[option ep.onnx_fp8.device] [provider tpu] expected "
                      "one of cpu, cuda"),
            std::string::npos);
  EXPECT_EQ(Complaint("threads", "4x"),
            "[option ep.onnx_fp8.threads] expected an integer of at least 1, "
            "got 4x");
  EXPECT_EQ(Complaint("threads", "99999999999999"),
            "[option ep.onnx_fp8.threads] expected at most 1024, got "
            "99999999999999");
  EXPECT_EQ(Complaint("loss_chunk", "-1"),
            "[option ep.onnx_fp8.loss_chunk] expected an integer of at least "
            "0, got -1");
  EXPECT_EQ(Complaint("pool", ""),
            "[option ep.onnx_fp8.pool] expected session or own, got ");
  EXPECT_NE(Complaint("recipe", "delayed").find("dynamic or static scales"),
            std::string::npos);
  EXPECT_NE(Complaint("recipe", "static")
                .find("[option ep.onnx_fp8.recipe] expected the option scales"),
            std::string::npos);
  EXPECT_NE(Complaint("scales", "no_such_file")
                .find("[option ep.onnx_fp8.scales] [no_such_file]"),
            std::string::npos);
  EXPECT_NE(Complaint("recipe", "fp9").find("[option ep.onnx_fp8.recipe]"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
