// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/k_major.h"

#include <gtest/gtest.h>

#include "tests/providers/after_pass.h"

namespace onnx_fp8 {
namespace {

KernelRegistry Fused() {
  KernelRegistry kernels;
  auto nothing = [](KernelContext&) {};
  kernels.Add("QuantizeTensorTranspose", nothing, {}, kDomain);
  kernels.Add("QuantizeWithTranspose", nothing, {}, kDomain);
  kernels.Add("QuantizeColumns", nothing, {}, kDomain);
  return kernels;
}

std::string Turned(const std::string& text, const KernelRegistry& kernels) {
  return AfterPass(text, MakeKMajor, kernels);
}

void ExpectNotTurned(const std::string& text) {
  EXPECT_EQ(Turned(text, Fused()), text);
}

// x (2·16, 32) and w (48, 32) as in a layer; dy (32, 48).
constexpr char kThreeProducts[] = R"(input x: float[2,16,32]
input w: float[48,32]
input dy: float[32,48]
input s: float[]
qx: float8e4m3fn[2,16,32], sx: float[], ax: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
qw: float8e4m3fn[48,32], sw: float[], aw: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
qd: float8e5m2[32,48], sd: float[], ad: float[] = onnx_fp8.QuantizeWith<q_max=57344.0, to=19>(dy, s)
y: float[2,16,48] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(qx, sx, qw, sw)
dx: float[32,32] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(qd, sd, qw, sw)
dw: float[48,32] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(qd, sd, qx, sx)
output y
output dx
output dw
)";

TEST(KMajor, ProductsReadTransposesThatQuantizersWrite) {
  EXPECT_EQ(Turned(kThreeProducts, Fused()), R"(input x: float[2,16,32]
input w: float[48,32]
input dy: float[32,48]
input s: float[]
qx: float8e4m3fn[2,16,32], sx: float[], ax: float[], qx.transposed: float8e4m3fn[32,32] = onnx_fp8.QuantizeTensorTranspose<q_max=448.0, to=17>(x)
qw: float8e4m3fn[48,32], sw: float[], aw: float[], qw.transposed: float8e4m3fn[32,48] = onnx_fp8.QuantizeTensorTranspose<q_max=448.0, to=17>(w)
qd: float8e5m2[32,48], sd: float[], ad: float[], qd.transposed: float8e5m2[48,32] = onnx_fp8.QuantizeWithTranspose<q_max=57344.0, to=19>(dy, s)
y: float[2,16,48] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(qx, sx, qw, sw)
dx: float[32,32] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(qd, sd, qw.transposed, sw)
dw: float[48,32] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(qd.transposed, sd, qx.transposed, sx)
output y
output dx
output dw
)");
}

TEST(KMajor, AProviderWithoutSuchKernelsKeepsItsGraph) {
  EXPECT_EQ(Turned(kThreeProducts, {}), kThreeProducts);
}

// A wgrad of `rowwise`: both operands have a scale for each column, which is a
// row of the product's sums.
constexpr char kColumns[] = R"(input x: float[2,16,32]
input dy: float[32,48]
qx: float8e4m3fn[2,16,32], sx: float[1,32], ax: float[] = onnx_fp8.QuantizeBlock<block_columns=1, block_rows=0, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
qd: float8e5m2[32,48], sd: float[2,48], ad: float[] = onnx_fp8.QuantizeBlock<block_columns=1, block_rows=16, pow2=0, q_max=57344.0, scale_to=1, to=19>(dy)
dw: float[48,32] = onnx_fp8.ScaledMatMulBlock<a_block_columns=1, a_block_rows=16, b_block_columns=1, b_block_rows=0, transA=1, transB=0>(qd, sd, qx, sx)
output dw
output ax
)";

TEST(KMajor, QuantizersOfColumnsWriteTheTranspose) {
  EXPECT_EQ(Turned(kColumns, Fused()), R"(input x: float[2,16,32]
input dy: float[32,48]
qx: float8e4m3fn[32,32], sx: float[32,1], ax: float[] = onnx_fp8.QuantizeColumns<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
qd: float8e5m2[48,32], sd: float[48,2], ad: float[] = onnx_fp8.QuantizeColumns<block_columns=16, block_rows=1, pow2=0, q_max=57344.0, scale_to=1, to=19>(dy)
dw: float[48,32] = onnx_fp8.ScaledMatMulBlock<a_block_columns=16, a_block_rows=1, b_block_columns=0, b_block_rows=1, transA=0, transB=1>(qd, sd, qx, sx)
output dw
output ax
)");
  EXPECT_EQ(Turned(kColumns, {}), kColumns);
}

// Codes and scales that others read keep their places; so do codes and scales
// of a product that reads them along k.
TEST(KMajor, ColumnsThatOthersReadStay) {
  for (const char* more :
       {"output qx\noutput qd\n", "output sx\noutput sd\n",
        "fx: float[2,16,32] = Cast<to=1>(qx)\nfd: float[32,48] = "
        "Cast<to=1>(qd)\noutput fx\noutput fd\n",
        "fx: float[1,32] = Neg(sx)\nfd: float[2,48] = Neg(sd)\n"
        "output fx\noutput fd\n"}) {
    std::string text = kColumns;
    text.replace(text.find("output dw\noutput ax\n"), text.npos, more);
    ExpectNotTurned(text + "output dw\n");
  }
  ExpectNotTurned(R"(input x: float[16,32]
q: float8e4m3fn[16,32], s: float[1,32], a: float[] = onnx_fp8.QuantizeBlock<block_columns=1, block_rows=0, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
y: float[16,16] = onnx_fp8.ScaledMatMulBlock<a_block_columns=1, a_block_rows=0, b_block_columns=1, b_block_rows=0, transA=0, transB=1>(q, s, q, s)
z: float[32,32] = onnx_fp8.ScaledMatMulBlock<a_block_columns=1, a_block_rows=0, b_block_columns=1, b_block_rows=0, transA=1, transB=0>(q, s, q, s)
output y
output z
)");
}

// Neither 24 rows nor 24 columns.
TEST(KMajor, SizesThatNeedPaddingStay) {
  for (const char* shape : {"24,16", "16,24"}) {
    std::string text = R"(input x: float[$]
q: float8e4m3fn[$], s: float[], a: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[@,@] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(q, s, q, s)
output y
)";
    for (size_t at; (at = text.find('$')) != std::string::npos;) {
      text.replace(at, 1, shape);
    }
    for (size_t at; (at = text.find('@')) != std::string::npos;) {
      text.replace(at, 1, std::string(shape).substr(3));
    }
    ExpectNotTurned(text);
  }
}

TEST(KMajor, OneTensorMayBeBothOperands) {
  EXPECT_NE(Turned(R"(input x: float[16,32]
q: float8e4m3fn[16,32], s: float[], a: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[32,32] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(q, s, q, s)
output y
)",
                   Fused())
                .find("ScaledMatMul<transA=0, transB=1>"
                      "(q.transposed, s, q.transposed, s)"),
            std::string::npos);
}

// A product in a file may read codes that a tensor holds.
TEST(KMajor, CodesThatNoQuantizerMakesStay) {
  ExpectNotTurned(R"(input q: float8e4m3fn[16,32]
input s: float[]
y: float[32,32] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(q, s, q, s)
output y
)");
}

}  // namespace
}  // namespace onnx_fp8
