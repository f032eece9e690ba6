// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/check_products.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

KernelRegistry Products(bool one_e5m2) {
  KernelRegistry kernels;
  kernels.Add(
      "ScaledMatMul", [](KernelContext&) {}, {.one_e5m2 = one_e5m2}, kDomain);
  return kernels;
}

std::string ErrorOf(const std::string& a, const std::string& b,
                    const std::string& role, bool one_e5m2) {
  auto graph = ParseGraph("graph \"g\" opset 24\ninput a: " + a +
                          "[4,16]\ninput b: " + b +
                          "[16,8]\ninput s: float[]\n"
                          "y: float[4,8] = onnx_fp8.ScaledMatMul<transA=0, "
                          "transB=0>(a, s, b, s)\n");
  for (Node& node : graph->nodes()) node.attributes["role"] = role;
  try {
    CheckProducts(*graph, Products(one_e5m2));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CheckProducts, NamesTheItemsOfTheRecipe) {
  const std::string two = "float8e5m2";
  for (auto [role, items] : {std::pair{"forward", "make i or w e4m3"},
                             {"dgrad", "make go or w_gi e4m3"},
                             {"wgrad", "make go_gw or i_gw e4m3"},
                             {"none", "make one operand e4m3"}}) {
    std::string error = ErrorOf(two, two, role, true);
    EXPECT_NE(error.find(items), std::string::npos) << error;
  }
}

TEST(CheckProducts, AcceptsTheOthers) {
  EXPECT_EQ(ErrorOf("float8e4m3fn", "float8e5m2", "dgrad", true), "");
  EXPECT_EQ(ErrorOf("float8e5m2", "float8e4m3fn", "dgrad", true), "");
  EXPECT_EQ(ErrorOf("float8e5m2", "float8e5m2", "dgrad", false), "");
}

}  // namespace
}  // namespace onnx_fp8
