// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/mx_scales.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

KernelRegistry Wanting(bool bytes) {
  KernelRegistry kernels;
  auto nothing = [](KernelContext&) {};
  kernels.Add("ScaledMatMulBlock", nothing, {.byte_scales = bytes}, kDomain);
  return kernels;
}

std::string Stored(const std::string& text, bool wanted = true) {
  auto graph = ParseGraph("graph \"g\" opset 24\n" + text);
  StoreMxScales(*graph, Wanting(wanted));
  Verify(*graph);
  std::string after = Print(*graph);
  return after.substr(after.find('\n') + 1);
}

std::string Quantized(const char* x, const char* scales, int scale_to, int pow2,
                      int columns = 32) {
  return Concat("q", x, ": float8e4m3fn[16,64], s", x, ": ", scales, "[16,",
                64 / columns, "], m", x,
                ": float[] = onnx_fp8.QuantizeBlock<block_columns=", columns,
                ", block_rows=1, pow2=", pow2,
                ", q_max=448.0, scale_to=", scale_to, ", to=17>(", x, ")\n");
}

constexpr char kOperands[] = "input a: float[16,64]\ninput b: float[16,64]\n";
constexpr char kProduct[] =
    "y: float[16,16] = onnx_fp8.ScaledMatMulBlock<a_block_columns=32, "
    "a_block_rows=1, b_block_columns=32, b_block_rows=1, transA=0, "
    "transB=1>(qa, sa, qb, sb)\noutput y\n";

std::string Both(const char* scales, int scale_to, int pow2) {
  return Concat(kOperands, Quantized("a", scales, scale_to, pow2),
                Quantized("b", scales, scale_to, pow2), kProduct);
}

TEST(MxScales, PowersOfTwoBecomeBytes) {
  for (int pow2 : {1, 2}) {
    EXPECT_EQ(Stored(Both("float", 1, pow2)), Both("float8e8m0", 24, pow2));
  }
}

void ExpectAsItWas(const std::string& text, bool wanted = true) {
  EXPECT_EQ(Stored(text, wanted), text);
}

TEST(MxScales, OthersStayAsTheyAre) {
  ExpectAsItWas(Both("float", 1, 0));
  ExpectAsItWas(Both("float", 1, 1), false);  // the kernel does not ask
  ExpectAsItWas(Both("float", 1, 1) + "output sa\noutput sb\n");
  // The other operand's scales are no powers of two.
  ExpectAsItWas(Concat(kOperands, Quantized("a", "float", 1, 1),
                       Quantized("b", "float", 1, 0), kProduct));
  // Somebody else reads them.
  std::string product = kProduct;
  ExpectAsItWas(Concat(kOperands, Quantized("a", "float", 1, 1),
                       Quantized("b", "float", 1, 1),
                       product.substr(0, product.find("output")),
                       "z: float[16,2] = Neg(sa)\nw: float[16,2] = Neg(sb)\n"
                       "output y\noutput z\noutput w\n"));
}

// Whatever a block holds, its scale is a power of two that float8e8m0 has.
TEST(MxScales, EveryScaleOfTheRuleIsAByte) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> largest = {
      0.0f,     0x1p-149f, 0x1p-126f, 1e-12f,
      0.9e-12f, 1.0f,      448.0f,    448.1f,
      kMost,    kInf,      -3.7f,     std::numeric_limits<float>::quiet_NaN()};
  for (int e = -149; e < 128; ++e) largest.push_back(std::ldexp(1.25f, e));
  auto rows = static_cast<int64_t>(largest.size());
  Tensor x = Tensor::Zeros(DType::kFloat, {rows, 32});
  for (int64_t i = 0; i < rows; ++i) {
    x.data<float>()[32 * i + i % 32] = largest[static_cast<size_t>(i)];
  }
  for (auto [to, q_max] :
       {std::pair{DType::kE4M3, 448.0f}, {DType::kE5M2, 57344.0f}}) {
    for (int64_t pow2 : {1, 2}) {
      Attributes attributes = {{"to", static_cast<int64_t>(to)},
                               {"q_max", q_max},
                               {"pow2", pow2},
                               {"block_rows", int64_t{1}},
                               {"block_columns", int64_t{32}}};
      auto run = [&](DType scale_to) {
        attributes["scale_to"] = static_cast<int64_t>(scale_to);
        return RunNode("QuantizeBlock", {x}, attributes, 3, kDomain);
      };
      std::vector<Tensor> floats = run(DType::kFloat),
                          bytes = run(DType::kE8M0);
      EXPECT_TRUE(Identical(floats[0], bytes[0]));
      for (int64_t i = 0; i < rows; ++i) {
        auto bits = std::bit_cast<uint32_t>(floats[1].data<float>()[i]);
        EXPECT_EQ(bits & 0x807FFFFFu, 0u) << i;
        EXPECT_EQ(bits >> 23, static_cast<const uint8_t*>(bytes[1].raw())[i])
            << i;
        EXPECT_GT(bits >> 23, 0u);
        EXPECT_LT(bits >> 23, 255u);
      }
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
