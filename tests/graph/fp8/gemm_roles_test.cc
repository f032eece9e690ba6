// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/gemm_roles.h"

#include <gtest/gtest.h>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// "dgrad w" for each product.
std::vector<std::string> Roles(
    const std::string& text,
    const std::vector<std::pair<std::string, std::string>>& gradients) {
  auto graph = ParseGraph(text);
  std::vector<std::pair<Value*, Value*>> pairs;
  for (const auto& [weight, gradient] : gradients) {
    pairs.push_back({graph->Find(weight), graph->Find(gradient)});
  }
  std::vector<std::string> roles;
  for (const GemmInfo& gemm :
       ClassifyGemms(*graph, graph->Find("seed"), pairs)) {
    std::string role = Name(gemm.role);
    roles.push_back(gemm.weight ? role + " " + gemm.weight->name : role);
  }
  return roles;
}

using Names = std::vector<std::string>;

TEST(GemmRoles, OfALinearLayer) {
  EXPECT_EQ(Roles(R"(
input x: float[2,3]
const seed: float[2,4]
param w: float[3,4]
y: float[2,4] = Gemm(x, w)
dx: float[2,3] = Gemm<transB=1>(seed, w)
dw: float[3,4] = Gemm<transA=1>(x, seed)
)",
                  {{"w", "dw"}}),
            (Names{"forward w", "dgrad w", "wgrad w"}));
}

// The gradient of a part of a weight is padded.
TEST(GemmRoles, OfASlicedWeight) {
  EXPECT_EQ(Roles(R"(
input x: float[2,3]
const seed: float[2,4]
const zero: int64[1] = {0}
const four: int64[1] = {4}
const one: int64[1] = {1}
const pads: int64[4] = {0,0,0,4}
param w: float[3,8]
part: float[3,4] = Slice(w, zero, four, one)
y: float[2,4] = Gemm(x, part)
dpart: float[3,4] = Gemm<transA=1>(x, seed)
dw: float[3,8] = Pad(dpart, pads)
)",
                  {{"w", "dw"}}),
            (Names{"forward w", "wgrad w"}));
}

// A product with ones may sum a bias' gradient; it belongs to no linear layer.
TEST(GemmRoles, AProductInABiassGradient) {
  EXPECT_EQ(Roles(R"(
input x: float[2,3]
input ones: float[1,2]
const seed: float[2,4]
param w: float[3,4]
param b: float[1,4]
y: float[2,4] = Gemm(x, w, b)
db: float[1,4] = Gemm(ones, seed)
)",
                  {{"b", "db"}}),
            (Names{"forward w", "none"}));
}

}  // namespace
}  // namespace onnx_fp8
