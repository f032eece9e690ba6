// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/check.h"
#include "cli/bench/node_cases.h"

namespace onnx_fp8 {
namespace {

const NodeCase& Named(const std::vector<NodeCase>& cases,
                      const std::string& what) {
  for (const NodeCase& c : cases) {
    if (c.what == what) return c;
  }
  Fail("no product \"", what, "\"");
}

// docs/fp8.md says which elements of each recipe have one scale.
TEST(ProductCases, HaveTheScalesOfTheirRecipes) {
  NodeSizes sizes;
  sizes.tokens = 512;
  const int64_t m = 512, k = 8192, n = 28672;  // of the product "gate, up"
  const std::vector<NodeCase> cases = ProductCases(sizes);
  auto expect = [&](const char* what, const Shape& of_a, const Shape& of_b) {
    const NodeCase& c = Named(cases, what);
    ASSERT_EQ(c.operands.size(), 4u) << what;
    EXPECT_EQ(c.operands[1].shape, of_a) << what;
    EXPECT_EQ(c.operands[3].shape, of_b) << what;
  };
  expect("gate, up forward, tensorwise", {}, {});
  expect("gate, up wgrad, tensorwise", {}, {});
  expect("gate, up forward, rowwise", {m, 1}, {n, 1});
  expect("gate, up dgrad, rowwise", {m, 1}, {k, 1});
  expect("gate, up forward, blockwise", {m, k / 128}, {n / 128, k / 128});
  expect("gate, up dgrad, blockwise", {m, n / 128}, {n / 128, k / 128});
  expect("gate, up wgrad, blockwise", {n, m / 128}, {k, m / 128});
  EXPECT_EQ(Named(cases, "gate, up forward, off").operands.size(), 2u);
}

}  // namespace
}  // namespace onnx_fp8
