// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/fuse_column_sums.h"

#include <gtest/gtest.h>

#include "tests/providers/after_pass.h"

namespace onnx_fp8 {
namespace {

KernelRegistry Transposing() {
  KernelRegistry kernels;
  auto nothing = [](KernelContext&) {};
  kernels.Add("QuantizeTensorTranspose", nothing, {}, kDomain);
  kernels.Add("QuantizeWithTranspose", nothing, {}, kDomain);
  kernels.Add("QuantizeColumns", nothing, {}, kDomain);
  return kernels;
}

std::string Fused(const std::string& text, const KernelRegistry& kernels) {
  return AfterPass(text, FuseColumnSums, kernels);
}

void ExpectSumStays(const std::string& text,
                    const KernelRegistry& kernels = Transposing()) {
  EXPECT_EQ(Fused(text, kernels), text);
}

// A sum of x that is read before the quantizer runs.
std::string Text(const std::string& quantizer, const std::string& sum) {
  return R"(input dy: float[2,16,32]
input s: float[]
const rows: int64[1] = {0}
const both: int64[2] = {0,1}
const shape: int64[2] = {32,32}
const columns: int64[1] = {1}
const many: int64[1] = {32}
const half: int64[2] = {64,16}
x: float[32,32] = Reshape(dy, shape)
)" + sum +
         R"(
n: float[32] = Neg(db)
q: float8e5m2[32,32], sq: float[], a: float[], t: float8e5m2[32,32] = onnx_fp8.)" +
         quantizer + R"(
output n
output q
output t
)";
}

constexpr char kTensor[] = "QuantizeTensorTranspose<q_max=57344.0, to=19>(x)";
constexpr char kWith[] = "QuantizeWithTranspose<q_max=57344.0, to=19>(x, s)";
constexpr char kSum[] = "db: float[32] = ReduceSum<keepdims=0>(x, rows)";

TEST(FuseColumnSums, TheQuantizerWritesTheSum) {
  EXPECT_EQ(Fused(Text(kTensor, kSum), Transposing()),
            R"(input dy: float[2,16,32]
input s: float[]
const rows: int64[1] = {0}
const both: int64[2] = {0,1}
const shape: int64[2] = {32,32}
const columns: int64[1] = {1}
const many: int64[1] = {32}
const half: int64[2] = {64,16}
x: float[32,32] = Reshape(dy, shape)
q: float8e5m2[32,32], sq: float[], a: float[], t: float8e5m2[32,32], db: float[32] = onnx_fp8.QuantizeTensorTranspose<q_max=57344.0, to=19>(x)
n: float[32] = Neg(db)
output n
output q
output t
)");
  std::string with = Fused(Text(kWith, kSum), Transposing());
  EXPECT_EQ(with.find("ReduceSum"), with.npos) << with;
}

TEST(FuseColumnSums, WithScalesOfColumns) {
  std::string text = Text(kTensor, kSum);
  auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace(kTensor,
          "QuantizeColumns<block_columns=0, block_rows=1, pow2=0, "
          "q_max=57344.0, scale_to=1, to=19>(x)");
  replace("sq: float[], a: float[], t: float8e5m2[32,32]",
          "sq: float[32,1], a: float[]");
  replace("output t\n", "");
  std::string after = Fused(text, Transposing());
  EXPECT_NE(after.find("a: float[], db: float[32] = onnx_fp8.QuantizeColumns"),
            after.npos)
      << after;
}

TEST(FuseColumnSums, KeptAxesAreAView) {
  std::string after =
      Fused(Text(kTensor,
                 "kept: float[1,32] = ReduceSum<keepdims=1>(x, rows)\n"
                 "db: float[32] = Reshape(kept, many)"),
            Transposing());
  EXPECT_EQ(after.find("ReduceSum"), after.npos) << after;
  EXPECT_NE(after.find("kept: float[1,32] = Reshape"), after.npos) << after;
}

TEST(FuseColumnSums, TheSumMayReadAnotherView) {
  std::string after =
      Fused(Text(kTensor, "db: float[32] = ReduceSum<keepdims=0>(dy, both)"),
            Transposing());
  EXPECT_EQ(after.find("ReduceSum"), after.npos) << after;
}

TEST(FuseColumnSums, OtherSumsStay) {
  // Sums of another tensor, of rows, of all elements, and of other rows.
  ExpectSumStays(Text(kTensor,
                      "d: float[32,32] = Neg(x)\n"
                      "db: float[32] = ReduceSum<keepdims=0>(d, rows)"));
  ExpectSumStays(
      Text(kTensor, "db: float[32] = ReduceSum<keepdims=0>(x, columns)"));
  ExpectSumStays(Text(kTensor,
                      "all: float[] = ReduceSum<keepdims=0>(x, both)\n"
                      "db: float[32] = Expand(all, many)"));
  ExpectSumStays(Text(kTensor,
                      "h: float[64,16] = Reshape(x, half)\n"
                      "dh: float[16] = ReduceSum<keepdims=0>(h, rows)\n"
                      "db: float[32] = Concat<axis=0>(dh, dh)"));
}

TEST(FuseColumnSums, AScaleThatWaitsForTheSumKeepsIt) {
  std::string text = Text(kWith, kSum);
  text.replace(text.find("(x, s)"), 6, "(x, m)");
  text.insert(text.find("q: "), "m: float[] = ReduceMax<keepdims=0>(n)\n");
  ExpectSumStays(text);
}

// No axes are all axes.
TEST(FuseColumnSums, TheSumOfARowStays) {
  ExpectSumStays(R"(input x: float[32]
const none: int64[0] = {}
q: float8e5m2[32], sq: float[], a: float[], t: float8e5m2[32,1] = onnx_fp8.QuantizeTensorTranspose<q_max=57344.0, to=19>(x)
all: float[] = ReduceSum<keepdims=0>(x, none)
output all
output q
output t
)");
}

TEST(FuseColumnSums, QuantizersOfOneOrientationStay) {
  std::string text = Text(kTensor, kSum);
  std::string other = "QuantizeTensor<q_max=57344.0, to=19>(x)";
  text.replace(text.find(kTensor), sizeof kTensor - 1, other);
  text.replace(text.find(", t: float8e5m2[32,32]"), 22, "");
  text.replace(text.find("output t\n"), 9, "");
  ExpectSumStays(text);
}

TEST(FuseColumnSums, AProviderWithoutSuchKernelsKeepsItsGraph) {
  ExpectSumStays(Text(kTensor, kSum), {});
}

}  // namespace
}  // namespace onnx_fp8
