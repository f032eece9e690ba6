// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/slice_before_product.h"

#include <gtest/gtest.h>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

const char kLayerInput[] = R"(graph "g" opset 24
input hidden: float[2,7,5]
input w: float[3,5]
input bias: float[3]
const flat: int64[2] = {14,5}
const whole: int64[3] = {2,7,3}
const zero: int64[1] = {0}
const one: int64[1] = {1}
const two: int64[1] = {2}
const last: int64[1] = {-1}
x: float[14,5] = Reshape(hidden, flat)
)";

const char kLayer[] = R"(
product: float[14,3] = Gemm<transB=1>(x, w, bias)
logits: float[2,7,3] = Reshape(product, whole)
)";

std::string Layer(const std::string& rest) {
  return std::string(kLayerInput) + kLayer + rest;
}

TEST(SliceBeforeProduct, TheLastTokenIsNotComputed) {
  std::string text = Layer(R"(
y: float[2,6,3] = Slice(logits, zero, last, one)
output y
)");
  ExpectSameValues(SliceBeforeProduct, text, 0);
  std::string after = AfterPass(SliceBeforeProduct, text);
  EXPECT_NE(after.find(": float[2,6,5] = Slice(hidden, zero, last, one)"),
            std::string::npos)
      << after;
  EXPECT_NE(after.find(": float[12,3] = Gemm<transB=1>"), std::string::npos)
      << after;
  EXPECT_EQ(after.find("float[14,3]"), std::string::npos) << after;
}

TEST(SliceBeforeProduct, OneSliceAfterTheOther) {
  std::string text = Layer(R"(
batch: float[1,7,3] = Slice(logits, one, two, zero)
y: float[1,3,3] = Slice(batch, zero, last, one, two)
output y
)");
  ExpectSameValues(SliceBeforeProduct, text, 0);
  std::string after = AfterPass(SliceBeforeProduct, text);
  EXPECT_NE(after.find(": float[3,3] = Gemm<transB=1>"), std::string::npos)
      << after;
}

TEST(SliceBeforeProduct, OfTheProductItself) {
  std::string text = std::string(kLayerInput) + R"(
product: float[14,3] = Gemm<transB=1>(x, w)
const all: int64[1] = {99}
y: float[12,3] = Slice(product, two, all, zero)
output y
)";
  ExpectSameValues(SliceBeforeProduct, text, 0);
  EXPECT_NE(AfterPass(SliceBeforeProduct, text)
                .find(": float[12,3] = Gemm<transB=1>"),
            std::string::npos);
}

// The Slice names the last axis too, and takes all of it.
TEST(SliceBeforeProduct, WithAnEndOfTheLastAxis) {
  for (const char* slice :
       {"const starts: int64[2] = {0,0}\nconst ends: int64[2] = {6,3}\n"
        "const axes: int64[2] = {1,-1}\n"
        "y: float[2,6,3] = Slice(logits, starts, ends, axes)\n",
        "const starts: int64[3] = {0,0,-3}\nconst ends: int64[3] = {2,6,3}\n"
        "y: float[2,6,3] = Slice(logits, starts, ends)\n",
        "const starts: int32[2] = {0,0}\nconst ends: int32[2] = {3,7}\n"
        "const axes: int32[2] = {2,1}\nconst steps: int32[2] = {1,2}\n"
        "y: float[2,4,3] = Slice(logits, starts, ends, axes, steps)\n"}) {
    SCOPED_TRACE(slice);
    std::string text = Layer(std::string(slice) + "output y\n");
    ExpectSameValues(SliceBeforeProduct, text, 0);
    EXPECT_EQ(AfterPass(SliceBeforeProduct, text).find("float[14,3]"),
              std::string::npos);
  }
}

// The one column of the product stays, so does every column of its operand.
TEST(SliceBeforeProduct, WithAStepOverOneColumn) {
  std::string text = std::string(kLayerInput) + R"(
input v: float[1,5]
const starts: int64[2] = {0,0}
const ends: int64[2] = {4,9}
const steps: int64[2] = {1,2}
const axes: int64[2] = {0,1}
product: float[14,1] = Gemm<transB=1>(x, v)
y: float[4,1] = Slice(product, starts, ends, axes, steps)
output y
)";
  ExpectSameValues(SliceBeforeProduct, text, 0);
  EXPECT_NE(AfterPass(SliceBeforeProduct, text).find("float[4,5] = Slice"),
            std::string::npos);
}

TEST(SliceBeforeProduct, LeavesOtherSlices) {
  const char* slices[] = {
      // of columns
      "y: float[2,7,2] = Slice(logits, zero, last, last)\noutput y\n",
      // of columns too, which keep their number and turn around
      "const starts: int64[2] = {0,2}\nconst ends: int64[2] = {6,-9}\n"
      "const axes: int64[2] = {1,2}\nconst steps: int64[2] = {1,-1}\n"
      "y: float[2,6,3] = Slice(logits, starts, ends, axes, steps)\noutput y\n",
      // of logits that others read
      "y: float[2,6,3] = Slice(logits, zero, last, one)\n"
      "z: float[2,7,3] = Neg(logits)\noutput y\noutput z\n",
      "y: float[2,6,3] = Slice(logits, zero, last, one)\n"
      "output y\noutput logits\n",
      "y: float[2,6,3] = Slice(logits, zero, last, one)\n"
      "z: float[14,3] = Neg(product)\noutput y\noutput z\n",
      // of all elements, and of none
      "y: float[2,7,3] = Slice(logits, zero, two, zero)\noutput y\n",
      "y: float[2,0,3] = Slice(logits, zero, zero, one)\noutput y\n",
  };
  for (const char* slice : slices) {
    SCOPED_TRACE(slice);
    ExpectStays(SliceBeforeProduct, Layer(slice));
  }
}

TEST(SliceBeforeProduct, LeavesAReshapeThatSplitsColumns) {
  ExpectStays(SliceBeforeProduct, std::string(kLayerInput) + R"(
product: float[14,3] = Gemm<transB=1>(x, w)
const other: int64[2] = {3,14}
split: float[3,14] = Reshape(product, other)
y: float[2,14] = Slice(split, zero, two, zero)
output y
)");
}

TEST(SliceBeforeProduct, LeavesAProductWithAWholeAddend) {
  ExpectStays(SliceBeforeProduct, std::string(kLayerInput) + R"(
input c: float[14,3]
product: float[14,3] = Gemm<transB=1>(x, w, c)
y: float[2,3] = Slice(product, zero, two, zero)
output y
)");
}

}  // namespace
}  // namespace onnx_fp8
