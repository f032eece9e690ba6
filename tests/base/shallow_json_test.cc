// SPDX-License-Identifier: Apache-2.0
#include "base/shallow_json.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

template <typename Json = nlohmann::json>
Json Parse(const std::string& text, int depth) {
  return ParseShallowJson<Json>(text.data(), text.size(), depth,
                                "[file] expected a table");
}

std::string Refusal(const std::string& text, int depth) {
  try {
    Parse<nlohmann::ordered_json>(text, depth);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ShallowJson, IsWhatNlohmannReads) {
  for (const char* text :
       {"3", "{}", "[]", R"({"a": [1, -2, 2.5, true, null, "x"], "b": {}})"}) {
    EXPECT_EQ(Parse(text, 2), nlohmann::json::parse(text)) << text;
  }
  for (const char* text : {"", "{", "{]", "[1,]", "nul", "{} x"}) {
    EXPECT_TRUE(Parse(text, 2).is_discarded()) << text;
  }
}

TEST(ShallowJson, RefusesDeepNesting) {
  EXPECT_EQ(Refusal("[[1]]", 2), "");
  EXPECT_EQ(Refusal("[[[1]]]", 2), "[file] expected a table, got deep nesting");
  EXPECT_EQ(Refusal(std::string(1'000'000, '['), 2),
            "[file] expected a table, got deep nesting");
}

// Millions of pairs would be compared if each key met those before it.
TEST(ShallowJson, ManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) {
    text += Concat(i > 0 ? "," : "", "\"", i, "\":[]");
  }
  text += "}";
  EXPECT_EQ(Parse(text, 2).size(), 200'000u);
  EXPECT_EQ(Refusal(text, 2),
            "[file] expected a table, got more than 10000 keys");
}

TEST(ShallowJson, VisitsKeysWithTheirDepth) {
  const std::string text = R"({"a": {"b": [{"c": 1}]}, "a": 2})";
  std::vector<std::string> seen;
  ParseShallowJson(text.data(), text.size(), 4, "",
                   [&](int depth, const std::string& key) {
                     seen.push_back(Concat(depth, key));
                   });
  EXPECT_EQ(seen, (std::vector<std::string>{"1a", "2b", "4c", "1a"}));
}

}  // namespace
}  // namespace onnx_fp8
