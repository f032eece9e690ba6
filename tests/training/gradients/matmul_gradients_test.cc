// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Products = testing::TestWithParam<GradientCase>;

TEST_P(Products, RuleIsTheDerivative) { CheckGradient(GetParam()); }

std::vector<GradientCase> MatMulCases() {
  return {
      {"MatMul", "MatMul", {X({2, 3}), X({3, 4})}},
      {"MatMulVectors", "MatMul", {X({3}), X({3})}},
      {"MatMulVectorMatrix", "MatMul", {X({3}), X({3, 2})}},
      {"MatMulMatrixVector", "MatMul", {X({2, 3}), X({3})}},
      {"MatMulVectorBatch", "MatMul", {X({3}), X({2, 3, 2})}},
      {"MatMulBatchVector", "MatMul", {X({2, 2, 3}), X({3})}},
      {"MatMulBatchMatrix", "MatMul", {X({2, 1, 2, 3}), X({3, 2})}},
      {"MatMulMatrixBatch", "MatMul", {X({2, 3}), X({2, 3, 2})}},
      {"MatMulBatches", "MatMul", {X({2, 2, 3}), X({2, 3, 2})}},
      {"MatMulBroadcastLeft", "MatMul", {X({1, 2, 3}), X({2, 3, 2})}},
      {"MatMulBroadcastBoth", "MatMul", {X({2, 1, 2, 3}), X({3, 3, 1})}},
      {"MatMulMissingAxis", "MatMul", {X({2, 3, 1, 2}), X({3, 2, 2})}},
  };
}

std::vector<GradientCase> GemmCases() {
  auto flags = [](int64_t a, int64_t b) {
    return Attributes{{"transA", a}, {"transB", b}};
  };
  Attributes scaled = flags(1, 0);
  scaled["alpha"] = 0.5f;
  scaled["beta"] = -2.0f;
  Attributes both = flags(1, 1);
  both["alpha"] = 1.5f;
  return {
      {"Gemm", "Gemm", {X({2, 3}), X({3, 4}), X({2, 4})}},
      {"GemmNoC", "Gemm", {X({2, 3}), X({3, 4})}},
      {"GemmTransA", "Gemm", {X({3, 2}), X({3, 4}), X({4})}, flags(1, 0)},
      {"GemmTransB", "Gemm", {X({2, 3}), X({4, 3}), X({1, 4})}, flags(0, 1)},
      {"GemmTransBoth", "Gemm", {X({3, 2}), X({4, 3}), X({2, 1})}, both},
      {"GemmScaled", "Gemm", {X({3, 2}), X({3, 4}), X({})}, scaled},
  };
}

std::vector<GradientCase> EinsumCases() {
  auto of = [](const char* equation) {
    return Attributes{{"equation", std::string(equation)}};
  };
  return {
      {"EinsumMatMul", "Einsum", {X({2, 3}), X({3, 4})}, of("ij,jk->ik")},
      {"EinsumImplicit", "Einsum", {X({2, 3}), X({3, 4})}, of("ij, jk")},
      {"EinsumImplicitOrder", "Einsum", {X({2, 3}), X({4, 2})}, of("ba,cb")},
      {"EinsumTranspose", "Einsum", {X({2, 3})}, of("ij->ji")},
      {"EinsumSum", "Einsum", {X({2, 3})}, of("ij->")},
      {"EinsumSumOwnAxis", "Einsum", {X({2, 3}), X({2, 2})}, of("ij,ik->ik")},
      {"EinsumAttention",
       "Einsum",
       {X({2, 2, 3, 2}), X({2, 2, 4, 2})},
       of("bhqd,bhkd->bhqk")},
      {"EinsumThree",
       "Einsum",
       {X({2, 3}), X({3, 2}), X({2})},
       of("ij,jk,k->i")},
      {"EinsumOuter", "Einsum", {X({2}), X({3})}, of("i,j->ij")},
      {"EinsumScalar", "Einsum", {X({}), X({2, 3})}, of(",ij->ji")},
      {"EinsumEllipsis",
       "Einsum",
       {X({2, 3, 4}), X({4, 2})},
       of("...k,kn->...n")},
      {"EinsumEllipsisBoth",
       "Einsum",
       {X({2, 1, 3, 2}), X({1, 4, 2, 3})},
       of("...ij,...jk->...ik")},
      {"EinsumEllipsisImplicit",
       "Einsum",
       {X({2, 2, 3}), X({2, 3, 2})},
       of("...ij,...jk")},
      {"EinsumUpperCase", "Einsum", {X({2, 3}), X({3, 4})}, of("Aj,jB->BA")},
      // Axes of one element broadcast, summed or not.
      {"EinsumOneSummed", "Einsum", {X({3, 1}), X({4, 2})}, of("ij,jk->ik")},
      {"EinsumSummedOne", "Einsum", {X({3, 4}), X({1, 2})}, of("ij,jk->ik")},
      {"EinsumOneInner", "Einsum", {X({1}), X({4})}, of("i,i->")},
      {"EinsumOneKept", "Einsum", {X({3, 1}), X({3, 4})}, of("ij,ij->ij")},
      {"EinsumOneOfThree",
       "Einsum",
       {X({3, 1}), X({1, 2}), X({4})},
       of("ij,jk,j->ki")},
  };
}

std::vector<GradientCase> BodyCases() {
  auto flags = [](int64_t inverse, int64_t onesided) {
    return Attributes{{"inverse", inverse}, {"onesided", onesided}};
  };
  return {
      {"Dft", "DFT", {X({2, 5, 2}), None(), Int(1)}, flags(0, 0)},
      {"DftInverseOfLonger",
       "DFT",
       {X({3, 2, 2}), Int(5), Int(0)},
       flags(1, 0)},
      {"DftOnesided", "DFT", {X({2, 6, 1}), None(), Int(-2)}, flags(0, 1)},
      {"DftInverseOnesided",
       "DFT",
       {X({2, 4, 2}), None(), Int(1)},
       flags(1, 1)},
      {"DftInverseOnesidedOdd",
       "DFT",
       {X({2, 4, 2}), Int(7), Int(1)},
       flags(1, 1)},
      {"Stft",
       "STFT",
       {X({2, 9, 1}), Int(3), X({4}), Int(4)},
       {{"onesided", int64_t{1}}}},
      {"StftComplex",
       "STFT",
       {X({1, 8, 2}), Int(2), None(), Int(4)},
       {{"onesided", int64_t{0}}}},
      {"Det", "Det", {X({3, 3})}},
      {"DetOfMany", "Det", {X({2, 3, 4, 4})}},
      {"DetOfOne", "Det", {X({2, 1, 1})}},
  };
}

INSTANTIATE_TEST_SUITE_P(Bodies, Products, testing::ValuesIn(BodyCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(MatMul, Products, testing::ValuesIn(MatMulCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Gemm, Products, testing::ValuesIn(GemmCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Einsum, Products, testing::ValuesIn(EinsumCases()),
                         CaseName);

}  // namespace
}  // namespace onnx_fp8
