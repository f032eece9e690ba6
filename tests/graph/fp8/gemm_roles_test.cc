// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/gemm_roles.h"

#include <gtest/gtest.h>

#include <array>

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

TEST(GemmRoles, ProductsInsideAttention) {
  const std::string heads = "<heads=4, kv_heads=4, scale=0.5, causal=0>";
  auto graph = ParseGraph(R"(
input q: float[2,3,32]
input k: float[2,5,32]
input v: float[2,5,24]
input dy: float[2,3,24]
y: float[2,3,24], lse: float[2,4,3] = onnx_fp8.Attention)" +
                          heads + R"((q, k, v)
dq: float[2,3,32], dk: float[2,5,32], dv: float[2,5,24] = onnx_fp8.AttentionGrad)" +
                          heads + "(dy, q, k, v, y, lse)\n");
  // The operands have 2 batches and 4 heads: 3 queries and 5 keys of width 8,
  // and 5 values of width 6.
  std::vector<std::array<int64_t, 3>> sizes;
  for (const GemmInfo& gemm : ClassifyGemms(*graph, graph->Find("dy"), {})) {
    EXPECT_EQ(gemm.role, GemmRole::kNone);
    sizes.push_back({gemm.m, gemm.k, gemm.n});
  }
  EXPECT_EQ(sizes, (std::vector<std::array<int64_t, 3>>{{24, 8, 5},
                                                        {24, 5, 6},
                                                        {24, 6, 5},
                                                        {24, 5, 8},
                                                        {40, 3, 8},
                                                        {40, 3, 6}}));
}

}  // namespace
}  // namespace onnx_fp8
