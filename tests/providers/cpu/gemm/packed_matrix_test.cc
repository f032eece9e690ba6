// SPDX-License-Identifier: Apache-2.0
//
// Products with a packed matrix must have the bits of Gemm().
#include "providers/cpu/gemm/packed_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "providers/cpu/gemm/kernels.h"
#include "tests/providers/cpu/isas.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

// Depth beyond one layer of every kernel, and sizes that are no multiples of
// tiles.
constexpr int64_t kDepth = 1100, kColumns = 75, kRows = 45;

// M, K, N; some use only a part of the packed matrix.
constexpr std::array<int64_t, 3> kProducts[] = {{kRows, kDepth, kColumns},
                                                {kRows, 600, 64},
                                                {14, 512, 32},
                                                {1, 1, 1},
                                                {3, 0, 5},
                                                {30, 7, 33}};

Tensor Random(DType dtype, const Shape& shape, uint64_t seed) {
  return ConvertTo(RandomNormal(shape, seed), dtype);
}

void ExpectTheBitsOfGemm(DType dtype) {
  for (bool a_turned : {false, true}) {
    for (bool b_turned : {false, true}) {
      Tensor a = Random(
          dtype, a_turned ? Shape{kDepth, kRows} : Shape{kRows, kDepth}, 1);
      Tensor b = Random(
          dtype, b_turned ? Shape{kColumns, kDepth} : Shape{kDepth, kColumns},
          2);
      PackedMatrix packed;
      GemmOperand right = {b.raw(), dtype, b.dim(1), b_turned};
      packed.Pack(right, kDepth, kColumns);
      for (auto [m, k, n] : kProducts) {
        for (bool accumulate : {false, true}) {
          GemmProblem p = {.m = m,
                           .n = n,
                           .k = k,
                           .a = {a.raw(), dtype, a.dim(1), a_turned},
                           .b = right,
                           .scale = accumulate ? 1.0f : 0.3f,
                           .accumulate = accumulate,
                           .ldc = kColumns + 2};
          Tensor expected = Random(dtype, {kRows, kColumns + 2}, 3);
          Tensor got = expected.Clone();
          p.c = expected.raw();
          Gemm(p);
          p.c = got.raw();
          packed.Multiply(p);
          EXPECT_TRUE(Identical(got, expected))
              << m << " x " << k << " x " << n << (a_turned ? " T" : " N")
              << (b_turned ? "T " : "N ") << accumulate;
        }
      }
    }
  }
}

using PackedMatrixTest = testing::TestWithParam<DType>;

TEST_P(PackedMatrixTest, GivesTheBitsOfGemm) {
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    ExpectTheBitsOfGemm(GetParam());
  }
}

TEST_P(PackedMatrixTest, IsPackedAnew) {
  Tensor b = Random(GetParam(), {40, 50}, 4);
  Tensor a = Random(GetParam(), {8, 40}, 5);
  PackedMatrix packed;
  packed.Pack({b.raw(), GetParam(), 50, false}, 40, 50);
  packed.Pack({b.raw(), GetParam(), 50, false}, 10, 20);
  Tensor expected = Tensor::Zeros(GetParam(), {8, 20});
  Tensor got = expected.Clone();
  GemmProblem p = {.m = 8,
                   .n = 20,
                   .k = 10,
                   .a = {a.raw(), GetParam(), 40, false},
                   .b = {b.raw(), GetParam(), 50, false},
                   .c = expected.raw(),
                   .ldc = 20};
  Gemm(p);
  p.c = got.raw();
  packed.Multiply(p);
  EXPECT_TRUE(Identical(got, expected));
}

// A part of the packed matrix gives the bits of that part, packed alone.
TEST_P(PackedMatrixTest, APartOfTheMatrix) {
  constexpr int64_t kDeep = 700, kWide = 150;
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    Tensor b = Random(GetParam(), {kDeep, kWide}, 6);
    Tensor a = Random(GetParam(), {21, 90}, 7);
    PackedMatrix packed, alone;
    packed.Pack({b.raw(), GetParam(), kWide, false}, kDeep, kWide);
    for (int64_t row : {0, 96, 608}) {
      for (int64_t column : {0, 64, 96}) {
        Tensor expected = Tensor::Zeros(GetParam(), {21, 50});
        Tensor got = expected.Clone();
        GemmProblem p = {.m = 21,
                         .n = 50,
                         .k = 90,
                         .a = {a.raw(), GetParam(), 90, false},
                         .c = expected.raw(),
                         .ldc = 50};
        auto at =
            static_cast<char*>(b.raw()) +
            (row * kWide + column) * static_cast<int64_t>(ByteSize(GetParam()));
        alone.Pack({at, GetParam(), kWide, false}, 90, 50);
        alone.Multiply(p);
        p.c = got.raw();
        packed.Multiply(p, row, column);
        EXPECT_TRUE(Identical(got, expected)) << row << ", " << column;
      }
    }
  }
}

// Products of bfloat16 whose left operand is read as it is, or turned.
TEST(PackedMatrix, OperandsOfBFloat16) {
  constexpr int64_t kDeep = 544, kWide = 75, kHigh = 45, kRoom = 64;
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    if (Bf16Kernels().a_layout == PanelLayout::kFloat) continue;
    for (int64_t k : {544, 95, 1}) {
      Tensor rows = Tensor::Zeros(DType::kFloat, {kRoom, kDeep});
      Tensor values = RandomNormal({kRoom, kDeep}, 1);
      for (int64_t i = 0; i < kRoom; ++i) {
        std::copy_n(values.data<float>() + i * kDeep, k,
                    rows.data<float>() + i * kDeep);
      }
      Tensor a = ConvertTo(rows, DType::kBFloat16);
      Tensor b = Random(DType::kBFloat16, {kDeep, kWide}, 2);
      Tensor turned = Random(DType::kBFloat16, {kDeep, kRoom}, 3);
      PackedMatrix packed;
      GemmOperand right = {b.raw(), DType::kBFloat16, kWide, false};
      packed.Pack(right, kDeep, kWide);
      for (bool transposed : {false, true}) {
        GemmOperand left = {transposed ? turned.raw() : a.raw(),
                            DType::kBFloat16, transposed ? kRoom : kDeep,
                            transposed};
        Tensor expected = Random(DType::kFloat, {kHigh, kWide}, 4);
        Tensor got = expected.Clone();
        GemmProblem p = {.m = kHigh,
                         .n = kWide,
                         .k = k,
                         .a = left,
                         .b = right,
                         .accumulate = true,
                         .c = expected.raw(),
                         .ldc = kWide};
        Gemm(p);
        p.c = got.raw();
        packed.Multiply(p);
        EXPECT_TRUE(Identical(got, expected))
            << Name(isa) << ", " << k << (transposed ? ", turned" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PackedMatrixTest,
                         testing::Values(DType::kFloat, DType::kDouble),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace onnx_fp8
