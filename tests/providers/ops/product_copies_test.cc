// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/product_copies.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::string CopiesOf(const std::string& a, const std::string& b,
                     const std::string& y, int trans_a, int trans_b) {
  auto graph = ParseGraph(Concat("graph \"g\" opset 24\ninput a: float8e4m3fn",
                                 a, "\ninput b: float8e4m3fn", b,
                                 "\ninput s: float[]\ny: float", y,
                                 " = onnx_fp8.ScaledMatMul<transA=", trans_a,
                                 ", transB=", trans_b, ">(a, s, b, s)\n"));
  return ProductCopies(graph->nodes().front());
}

TEST(ProductCopies, NothingIsCopiedOfRowsAlongK) {
  EXPECT_EQ(CopiesOf("[2,16,32]", "[48,32]", "[2,16,48]", 0, 1), "");
}

TEST(ProductCopies, OtherOrientationsAreTurned) {
  EXPECT_EQ(CopiesOf("[32,16]", "[32,48]", "[16,48]", 1, 0),
            "a turned, b turned");
  EXPECT_EQ(CopiesOf("[2,16,32]", "[32,48]", "[2,16,48]", 0, 0), "b turned");
}

TEST(ProductCopies, OtherSizesArePadded) {
  EXPECT_EQ(CopiesOf("[3,7,50]", "[10,50]", "[3,7,10]", 0, 1),
            "m 21 to 32, k 50 to 64, n 10 to 16");
  EXPECT_EQ(CopiesOf("[50,16]", "[50,10]", "[16,10]", 1, 0),
            "a turned, b turned, k 50 to 64, n 10 to 16");
}

TEST(ProductCopies, OperandsWithMxScalesAreDecoded) {
  for (const auto& [scale, text] :
       {std::pair{"float8e8m0",
                  "decoded, except on Blackwell; Hopper's nearest recipe is "
                  "blockwise"},
        {"float",
         "decoded: no powers of two; Hopper's nearest recipe is blockwise"}}) {
    auto graph = ParseGraph(Concat(
        "graph \"g\" opset 24\ninput a: float8e4m3fn[16,32]\ninput s: ", scale,
        "[16,1]\ny: float[16,16] = onnx_fp8.ScaledMatMulBlock<"
        "a_block_columns=32, a_block_rows=1, b_block_columns=32, "
        "b_block_rows=1, transA=0, transB=1>(a, s, a, s)\n"));
    EXPECT_EQ(ProductCopies(graph->nodes().front()), text);
  }
}

TEST(ProductCopies, OtherNodesCopyNothing) {
  auto graph = ParseGraph(
      "graph \"g\" opset 24\ninput a: float[3,5]\ny: float[3,5] = Relu(a)\n");
  EXPECT_EQ(ProductCopies(graph->nodes().front()), "");
}

}  // namespace
}  // namespace onnx_fp8
