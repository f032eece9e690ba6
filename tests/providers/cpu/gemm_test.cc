// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "onnx_fp8/check.h"
#include "onnx_fp8/parallel.h"
#include "tests/providers/cpu/kernel_runner.h"

namespace onnx_fp8 {
namespace {

GemmOperand Operand(const Tensor& t, bool transposed) {
  return {t.raw(), t.dtype(), t.dim(1), transposed};
}

// x (rows, cols) as the operand of op(x) (m, k).
Tensor Matrix(int64_t m, int64_t k, bool transposed, uint64_t seed,
              DType dtype = DType::kFloat) {
  Shape shape = transposed ? Shape{k, m} : Shape{m, k};
  return ConvertTo(RandomNormal(shape, seed), dtype);
}

double At(const Tensor& t, bool transposed, int64_t i, int64_t j) {
  return DoubleAt(t, transposed ? j * t.dim(1) + i : i * t.dim(1) + j);
}

// Bound of an fp32 sum of k products: k · 2^-24 · Σ|a||b| (Higham, 3.1); the
// sum in double is exact beside it.
void ExpectProduct(const Tensor& c, const Tensor& a, bool ta, const Tensor& b,
                   bool tb, double scale, const Tensor& bias) {
  int64_t k = ta ? a.dim(0) : a.dim(1);
  for (int64_t i = 0; i < c.dim(0); ++i) {
    for (int64_t j = 0; j < c.dim(1); ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < k; ++l) {
        double x = At(a, ta, i, l) * At(b, tb, l, j);
        sum += x;
        magnitude += std::fabs(x);
      }
      double z = bias.defined() ? DoubleAt(bias, j) : 0;
      double bound = static_cast<double>(k + 2) * 0x1p-24 *
                     (magnitude * std::fabs(scale) + std::fabs(z));
      ASSERT_NEAR(DoubleAt(c, i * c.dim(1) + j), sum * scale + z, bound)
          << c.dim(0) << "x" << k << "x" << c.dim(1) << ta << tb;
    }
  }
}

const int64_t kSizes[][3] = {{1, 1, 1},     {1, 17, 3},    {5, 1, 9},
                             {3, 33, 2},    {16, 16, 16},  {17, 63, 31},
                             {64, 257, 65}, {130, 40, 129}};

TEST(Gemm, AllOrientationsEqualDouble) {
  for (auto [m, k, n] : kSizes) {
    for (bool ta : {false, true}) {
      for (bool tb : {false, true}) {
        Tensor a = Matrix(m, k, ta, 1), b = Matrix(k, n, tb, 2);
        Tensor bias = RandomNormal({n}, 3);
        Tensor c = Tensor::Allocate(DType::kFloat, {m, n});
        GemmProblem p = {.m = m,
                         .n = n,
                         .k = k,
                         .a = Operand(a, ta),
                         .b = Operand(b, tb),
                         .c = c.raw()};
        Gemm(p);
        ExpectProduct(c, a, ta, b, tb, 1, {});
        p.scale = 0.3f;
        p.bias = bias.raw();
        Gemm(p);
        ExpectProduct(c, a, ta, b, tb, p.scale, bias);
      }
    }
  }
}

TEST(Gemm, SmallFormatsGiveTheBitsOfTheirDecodedValues) {
  const DType kFormats[] = {DType::kE4M3, DType::kE5M2, DType::kBFloat16,
                            DType::kFloat};
  for (auto [m, k, n] : kSizes) {
    for (DType da : kFormats) {
      for (DType db : kFormats) {
        bool ta = (m + n) % 2 != 0, tb = k % 2 != 0;
        Tensor a = Matrix(m, k, ta, 1, da), b = Matrix(k, n, tb, 2, db);
        Tensor fa = ConvertTo(a, DType::kFloat);
        Tensor fb = ConvertTo(b, DType::kFloat);
        Tensor c = Tensor::Allocate(DType::kFloat, {m, n});
        Tensor fc = Tensor::Allocate(DType::kFloat, {m, n});
        GemmProblem p = {.m = m,
                         .n = n,
                         .k = k,
                         .a = Operand(a, ta),
                         .b = Operand(b, tb),
                         .scale = 0.7f,
                         .c = c.raw()};
        Gemm(p);
        p.a = Operand(fa, ta);
        p.b = Operand(fb, tb);
        p.c = fc.raw();
        Gemm(p);
        EXPECT_TRUE(Identical(c, fc)) << Name(da) << Name(db);
      }
    }
  }
}

TEST(Gemm, DoubleAndBeta) {
  Tensor a = ConvertTo(RandomNormal({7, 5}, 1), DType::kDouble);
  Tensor b = ConvertTo(RandomNormal({5, 3}, 2), DType::kDouble);
  Tensor bias = ConvertTo(RandomNormal({3}, 3), DType::kDouble);
  Tensor c0 = ConvertTo(RandomNormal({7, 3}, 4), DType::kDouble);
  for (bool epilogue : {false, true}) {
    Tensor c = c0.Clone();
    GemmProblem p = {.m = 7,
                     .n = 3,
                     .k = 5,
                     .a = Operand(a, false),
                     .b = Operand(b, false),
                     .beta = -0.5f,
                     .c = c.raw()};
    if (epilogue) p.scale = 0.25f, p.bias = bias.raw();
    Gemm(p);
    for (int64_t i = 0; i < c.size(); ++i) {
      double sum = 0;
      for (int64_t l = 0; l < 5; ++l) {
        sum += At(a, false, i / 3, l) * At(b, false, l, i % 3);
      }
      double z = epilogue ? 0.25 * sum + DoubleAt(bias, i % 3) : sum;
      EXPECT_NEAR(DoubleAt(c, i), z - 0.5 * DoubleAt(c0, i), 1e-14);
    }
  }
}

TEST(Gemm, LeadingDimensionsLeaveTheRestAlone) {
  // 2x3 inside 4x5 and 3x2 inside 3x7, to 2x2 inside 3x6.
  Tensor a = ConvertTo(RandomNormal({4, 5}, 1), DType::kE4M3);
  Tensor b = RandomNormal({3, 7}, 2);
  Tensor c = Tensor::Zeros(DType::kFloat, {3, 6});
  GemmProblem p = {.m = 2, .n = 2, .k = 3, .c = c.raw(), .ldc = 6};
  p.a = {a.raw(), a.dtype(), 5, false};
  p.b = {b.raw(), b.dtype(), 7, false};
  Gemm(p);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 6; ++j) {
      double sum = 0;
      if (i < 2 && j < 2) {
        for (int64_t l = 0; l < 3; ++l) {
          sum += At(a, false, i, l) * At(b, false, l, j);
        }
      }
      EXPECT_NEAR(DoubleAt(c, i * 6 + j), sum, 1e-6);
    }
  }
}

TEST(Gemm, EmptySumsAndNonFiniteValues) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> bias = {1, 2, 3};
  std::vector<float> c(6, nan);
  GemmProblem p = {.m = 2, .n = 3, .k = 0, .bias = bias.data(), .c = c.data()};
  Gemm(p);
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 1, 2, 3}));
  p.bias = nullptr;
  Gemm(p);
  EXPECT_EQ(c, std::vector<float>(6, 0.0f));
  p.m = 0;
  p.c = nullptr;
  Gemm(p);

  // NaN · 0 is NaN, and an old NaN in c is not read.
  std::vector<float> x = {nan, 1}, y = {0, 1};
  std::vector<float> z = {nan};
  p = {.m = 1, .n = 1, .k = 2, .c = z.data()};
  p.a = {x.data(), DType::kFloat, 2, false};
  p.b = {y.data(), DType::kFloat, 1, false};
  Gemm(p);
  EXPECT_TRUE(std::isnan(z[0]));
  x[0] = 5;
  Gemm(p);
  EXPECT_EQ(z[0], 1);
  p.m = int64_t{1} << 31;
  EXPECT_THROW(Gemm(p), Error);
}

TEST(Gemm, BatchesEqualSingleProducts) {
  int threads = NumThreads();
  for (int64_t m : {int64_t{3}, int64_t{220}}) {  // side by side | in turn
    Tensor a = RandomNormal({4, m, m}, 1), b = RandomNormal({2, m, m}, 2);
    Tensor c = Tensor::Allocate(DType::kFloat, {4, m, m});
    Tensor one = Tensor::Allocate(DType::kFloat, {m, m});
    GemmProblem p = {.m = m, .n = m, .k = m, .c = c.raw()};
    p.a = {a.raw(), DType::kFloat, m, false};
    p.b = {b.raw(), DType::kFloat, m, true};
    std::vector<GemmOffsets> batch;
    for (int64_t i = 0; i < 4; ++i) {
      batch.push_back({i * m * m, i / 2 * m * m, i * m * m});
    }
    BatchedGemm(p, batch);
    SetNumThreads(1);
    for (int64_t i = 0; i < 4; ++i) {
      p.a.data = a.data<float>() + i * m * m;
      p.b.data = b.data<float>() + i / 2 * m * m;
      p.c = one.raw();
      Gemm(p);
      Tensor part = Tensor::View(DType::kFloat, {m, m}, nullptr,
                                 c.data<float>() + i * m * m);
      EXPECT_LT(LargestDifference(part, one), 1e-4);
      if (m == 3) {
        EXPECT_TRUE(Identical(part, one));
      }
    }
    SetNumThreads(threads);
  }
}

TEST(Gemm, NamesItsBackend) {
  EXPECT_EQ(GemmBackend().substr(0, 9), "OpenBLAS ");
  EXPECT_EQ(GemmBackend().back(), ')');
}

}  // namespace
}  // namespace onnx_fp8
