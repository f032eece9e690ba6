// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/parallel.h"
#include "providers/cpu/gemm/kernels.h"
#include "tests/providers/cpu/isas.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

GemmOperand Operand(const Tensor& t, bool transposed) {
  return {t.raw(), t.dtype(), t.dim(1), transposed};
}

// c = op(a) · op(b).
GemmProblem Product(const Tensor& a, bool ta, const Tensor& b, bool tb,
                    Tensor& c) {
  return {.m = c.dim(0),
          .n = c.dim(1),
          .k = a.dim(ta ? 0 : 1),
          .a = Operand(a, ta),
          .b = Operand(b, tb),
          .c = c.raw()};
}

// x (rows, cols) as the operand of op(x) (m, k).
Tensor Matrix(int64_t m, int64_t k, bool transposed, uint64_t seed,
              DType dtype = DType::kFloat) {
  Shape shape = transposed ? Shape{k, m} : Shape{m, k};
  return ConvertTo(RandomNormal(shape, seed), dtype);
}

// Bound of an fp32 sum of k products: k · 2^-24 · Σ|a||b| (Higham, 3.1). The
// sum in double is exact in comparison.
void ExpectProduct(const Tensor& c, const Tensor& a, bool ta, const Tensor& b,
                   bool tb, double scale, const Tensor& bias) {
  int64_t k = ta ? a.dim(0) : a.dim(1);
  std::vector<double> rows = MatrixRows<double>(a, ta);
  std::vector<double> columns = MatrixRows<double>(b, !tb);
  for (int64_t i = 0; i < c.dim(0); ++i) {
    for (int64_t j = 0; j < c.dim(1); ++j) {
      double sum = 0, magnitude = 0;
      const double *row = &rows[i * k], *column = &columns[j * k];
      for (int64_t l = 0; l < k; ++l) {
        double x = row[l] * column[l];
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

// The last sizes are deeper, higher and wider than a block of every kernel.
const int64_t kSizes[][3] = {{1, 1, 1},      {1, 17, 3},     {5, 1, 9},
                             {3, 33, 2},     {16, 16, 16},   {17, 63, 31},
                             {64, 257, 65},  {130, 40, 129}, {31, 1100, 17},
                             {17, 1100, 31}, {530, 3, 201},  {201, 3, 530}};

// Σ a(l)·b(l) over l of [0, depth) in the kernels' order; `fused` or not.
float InOrder(int64_t depth, bool fused, auto&& a, auto&& b) {
  float sum = 0;
  for (int64_t l = 0; l < depth; ++l) {
    sum = fused ? std::fma(a(l), b(l), sum) : sum + a(l) * b(l);
  }
  return sum;
}

// vdpbf16ps: fused, the odd element of each pair first.
float InPairs(int64_t depth, auto&& a, auto&& b) {
  float sum = 0;
  for (int64_t l = 0; l < depth; l += 2) {
    if (l + 1 < depth) sum = std::fma(a(l + 1), b(l + 1), sum);
    sum = std::fma(a(l), b(l), sum);
  }
  return sum;
}

// TDPBF16PS: of each 32, even and odd elements are summed separately.
float InTiles(int64_t depth, auto&& a, auto&& b) {
  float sum = 0;
  for (int64_t k = 0; k < depth; k += 32) {
    float even = 0, odd = 0;
    for (int64_t l = k; l < std::min(k + 32, depth); l += 2) {
      even = std::fma(a(l), b(l), even);
      if (l + 1 < depth) odd = std::fma(a(l + 1), b(l + 1), odd);
    }
    sum += even + odd;
  }
  return sum;
}

float SumAs(const GemmKernels& kernels, int64_t depth, auto&& a, auto&& b) {
  std::string name = kernels.name;
  if (name == "amx") return InTiles(depth, a, b);
  if (name == "avx512bf16") return InPairs(depth, a, b);
  return InOrder(depth, name != "portable", a, b);
}

// Compares every element of c, or of each row_step-th row, bit for bit with the
// kernel's own definition.
void ExpectBits(const GemmKernels& kernels, const GemmProblem& p,
                const Tensor& c, const Tensor& a, const Tensor& b,
                int64_t row_step = 1) {
  auto bias = static_cast<const float*>(p.bias);
  std::vector<float> rows = MatrixRows<float>(a, p.a.transposed);
  std::vector<float> columns = MatrixRows<float>(b, !p.b.transposed);
  int64_t layer = p.scale_depth > 0 ? p.scale_depth : kernels.max_depth;
  for (int64_t i = 0; i < p.m; i += row_step) {
    for (int64_t j = 0; j < p.n; ++j) {
      auto scale_of = [&](int64_t group) {
        return p.row_scale[group * p.m + i] * p.column_scale[group * p.n + j];
      };
      float sum = 0;
      for (int64_t k = 0; k < p.k; k += layer) {
        const float *row = &rows[i * p.k + k], *column = &columns[j * p.k + k];
        float part = SumAs(
            kernels, std::min(layer, p.k - k),
            [=](int64_t l) { return row[l]; },
            [=](int64_t l) { return column[l]; });
        if (p.scale_depth > 0) part *= scale_of(k / layer);
        sum = k == 0 ? part : sum + part;
      }
      float scale = p.scale;
      if (p.row_scale && p.scale_depth == 0) scale = scale_of(0);
      float expected = sum * scale;
      if (bias) expected += bias[j];
      ASSERT_EQ(c.data<float>()[i * p.n + j], expected)
          << kernels.name << " at " << i << ", " << j << " of " << p.m << " x "
          << p.k << " x " << p.n << " " << Name(a.dtype()) << p.a.transposed
          << Name(b.dtype()) << p.b.transposed;
    }
  }
}

bool IsSmall(DType dtype) { return dtype != DType::kFloat; }

TEST(Gemm, EveryKernelFormatAndOrientationEqualsItsDefinition) {
  const DType kFormats[] = {DType::kFloat, DType::kE4M3, DType::kE5M2,
                            DType::kBFloat16};
  int count = 0;
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (auto [m, k, n] : kSizes) {
      for (DType da : kFormats) {
        for (DType db : kFormats) {
          // All four orientations of each pair, but not for each size.
          bool ta = ++count % 2 != 0, tb = count / 2 % 2 != 0;
          Tensor a = Matrix(m, k, ta, 1, da), b = Matrix(k, n, tb, 2, db);
          Tensor bias = RandomNormal({n}, 3);
          Tensor c = Tensor::Allocate(DType::kFloat, {m, n});
          GemmProblem p = Product(a, ta, b, tb, c);
          if (count % 3 != 0) p.scale = 0.3f, p.bias = bias.raw();
          Gemm(p);
          bool small = IsSmall(da) && IsSmall(db);
          ExpectBits(small ? Bf16Kernels() : FloatKernels(), p, c, a, b);
        }
      }
      ++count;
    }
  }
}

// A matrix inside a larger one that has NaN around it.
struct Embedded {
  Embedded(const Tensor& inner, int64_t margin) {
    int64_t rows = inner.dim(0), columns = inner.dim(1);
    ld = columns + margin;
    Tensor wide = Tensor::Allocate(DType::kFloat, {rows + margin, ld});
    for (int64_t i = 0; i < wide.size(); ++i) {
      int64_t row = i / ld, column = i % ld;
      bool inside = row < rows && column < columns;
      wide.data<float>()[i] =
          inside ? static_cast<float>(DoubleAt(inner, row * columns + column))
                 : std::numeric_limits<float>::quiet_NaN();
    }
    outer = ConvertTo(wide, inner.dtype());
  }
  Tensor outer;
  int64_t ld;
};

TEST(Gemm, NothingAroundTheOperandsCounts) {
  int count = 0;
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (int64_t k : {1, 7, 15, 31, 32, 33, 63, 95}) {
      for (DType dtype : {DType::kFloat, DType::kE4M3, DType::kBFloat16}) {
        int64_t m = 70, n = 67;
        bool ta = ++count % 2 != 0, tb = count / 2 % 2 != 0;
        Tensor a = Matrix(m, k, ta, 1, dtype), b = Matrix(k, n, tb, 2, dtype);
        Tensor c = Tensor::Allocate(DType::kFloat, {m, n});
        Tensor d = Tensor::Allocate(DType::kFloat, {m, n});
        GemmProblem p = Product(a, ta, b, tb, c);
        Gemm(p);
        Embedded wide_a(a, 5), wide_b(b, 3);
        p.a.data = wide_a.outer.raw();
        p.a.ld = wide_a.ld;
        p.b.data = wide_b.outer.raw();
        p.b.ld = wide_b.ld;
        p.c = d.raw();
        Gemm(p);
        EXPECT_TRUE(Identical(c, d))
            << Name(isa) << " " << Name(dtype) << " " << k << ta << tb;
      }
    }
  }
}

// Either operand may be the one that is packed in slabs, and it may need
// several.
TEST(Gemm, EveryKernelMultipliesMoreThanASlab) {
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (auto [m, k, n] :
         {std::array<int64_t, 3>{4200, 2, 4100}, {4100, 2, 4200}}) {
      for (DType dtype : {DType::kFloat, DType::kE4M3}) {
        Tensor a = Matrix(m, k, false, 1, dtype);
        Tensor b = Matrix(k, n, true, 2, dtype);
        Tensor bias = RandomNormal({n}, 3);
        Tensor c = Tensor::Zeros(DType::kFloat, {m, n});
        GemmProblem p = Product(a, false, b, true, c);
        p.bias = bias.raw();
        Gemm(p);
        ExpectBits(IsSmall(dtype) ? Bf16Kernels() : FloatKernels(), p, c, a, b,
                   53);
      }
    }
  }
}

TEST(Gemm, EveryKernelScalesRowsAndColumnsAndDepths) {
  int count = 0;
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (auto [m, k, n] : {std::array<int64_t, 3>{1, 1, 1},
                           {17, 63, 31},
                           {40, 300, 70},
                           {29, 600, 37},
                           {201, 70, 530},
                           {3, 8300, 2}}) {
      for (int64_t depth : {0, 32, 64, 128, 256}) {
        bool ta = ++count % 2 != 0, tb = count / 2 % 2 != 0;
        int64_t groups = depth > 0 ? (k + depth - 1) / depth : 1;
        Tensor a = Matrix(m, k, ta, 1, DType::kE4M3);
        Tensor b =
            Matrix(k, n, tb, 2, count % 3 == 0 ? DType::kFloat : DType::kE5M2);
        Tensor rows = RandomNormal({groups, m}, 3);
        Tensor columns = RandomNormal({groups, n}, 4);
        Tensor bias = RandomNormal({n}, 5);
        Tensor c = Tensor::Allocate(DType::kFloat, {m, n});
        GemmProblem p = Product(a, ta, b, tb, c);
        p.row_scale = rows.data<float>();
        p.column_scale = columns.data<float>();
        p.scale_depth = depth;
        if (count % 5 != 0) p.bias = bias.raw();
        Gemm(p);
        ExpectBits(count % 3 == 0 ? FloatKernels() : Bf16Kernels(), p, c, a, b);
      }
    }
  }
}

// The result is that in float, rounded.
TEST(Gemm, EveryKernelRoundsItsResult) {
  int count = 0;
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (auto [m, k, n] : {std::array<int64_t, 3>{1, 1, 1},
                           {17, 63, 31},
                           {300, 1100, 70},
                           {70, 600, 1300},
                           {1300, 40, 530},
                           {530, 40, 4200},
                           {4200, 40, 37},
                           {4130, 5, 4130},
                           {3, 0, 5},
                           {130, 8300, 40}}) {
      for (DType dtype :
           {DType::kFloat, DType::kBFloat16, DType::kFloat16, DType::kE4M3}) {
        bool ta = ++count % 2 != 0, tb = count / 2 % 2 != 0;
        DType to = count % 3 != 0 ? DType::kBFloat16 : DType::kFloat16;
        Tensor a = Matrix(m, k, ta, 1, dtype), b = Matrix(k, n, tb, 2, dtype);
        Tensor bias = RandomNormal({n}, 5);
        // A column of each: NaN, infinity, the largest float, a tie.
        const float special[] = {std::bit_cast<float>(0x7FFFFFFF),
                                 -std::numeric_limits<float>::infinity(),
                                 std::numeric_limits<float>::max(), 0x1.01p30f};
        for (int64_t j = 0; j < std::min<int64_t>(n, 4); ++j) {
          bias.data<float>()[n - 1 - j] = special[j];
        }
        Tensor c = Tensor::Allocate(DType::kFloat, {m, n});
        GemmProblem p = Product(a, ta, b, tb, c);
        p.bias = bias.raw();
        p.scale = 0.5f;
        Gemm(p);
        Tensor rounded = Tensor::Allocate(to, {m, n});
        p.c = rounded.raw();
        p.c_dtype = to;
        Gemm(p);
        ASSERT_TRUE(Identical(rounded, ConvertTo(c, to)))
            << Name(isa) << " " << m << "x" << k << "x" << n << " "
            << Name(dtype) << " to " << Name(to);
      }
    }
  }
}

// The bits equal a product followed by an addition.
TEST(Gemm, EveryKernelAddsItsResult) {
  int count = 0;
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (auto [m, k, n] : {std::array<int64_t, 3>{1, 1, 1},
                           {17, 63, 31},
                           {300, 1100, 70},
                           {70, 600, 1300},
                           {530, 40, 4200},
                           {4200, 40, 530},
                           {4130, 5, 4130},
                           {3, 0, 5},
                           {130, 8300, 40}}) {
      for (DType dtype : {DType::kFloat, DType::kBFloat16, DType::kE4M3}) {
        bool ta = ++count % 2 != 0, tb = count / 2 % 2 != 0;
        Tensor a = Matrix(m, k, ta, 1, dtype), b = Matrix(k, n, tb, 2, dtype);
        Tensor bias = RandomNormal({n}, 5), sum = RandomNormal({m, n}, 6);
        Tensor rows = RandomNormal({m}, 3), columns = RandomNormal({n}, 4);
        Tensor c = Tensor::Allocate(DType::kFloat, {m, n});
        GemmProblem p = Product(a, ta, b, tb, c);
        if (count / 3 % 2 == 0) p.bias = bias.raw();
        if (count / 6 % 2 == 0) {
          p.row_scale = rows.data<float>();
          p.column_scale = columns.data<float>();
        } else {
          p.scale = 0.3f;
        }
        Gemm(p);
        for (int64_t i = 0; i < c.size(); ++i) {
          c.data<float>()[i] += sum.data<float>()[i];
        }
        p.c = sum.raw();
        p.add = true;
        Gemm(p);
        ASSERT_TRUE(Identical(sum, c)) << Name(isa) << " " << m << "x" << k
                                       << "x" << n << " " << Name(dtype);
        p.c_dtype = DType::kBFloat16;
        EXPECT_THROW(Gemm(p), Error);
      }
    }
  }
}

TEST(Gemm, EveryKernelIsCloseToDouble) {
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (DType dtype : {DType::kFloat, DType::kE5M2}) {
      Tensor a = Matrix(70, 1500, true, 1, dtype);
      Tensor b = Matrix(1500, 90, false, 2, dtype);
      Tensor bias = RandomNormal({90}, 3);
      Tensor c = Tensor::Allocate(DType::kFloat, {70, 90});
      GemmProblem p = Product(a, true, b, false, c);
      p.scale = 0.3f;
      p.bias = bias.raw();
      Gemm(p);
      ExpectProduct(c, a, true, b, false, 0.3f, bias);
    }
  }
}

TEST(Gemm, SmallFormatsGiveTheBitsOfTheirDecodedValues) {
  for (Isa isa : RunnableIsas()) {
    if (isa > Isa::kAvx512) continue;  // kernels with another order of sums
    WithIsa with(isa);
    for (auto [m, k, n] : kSizes) {
      bool ta = (m + n) % 2 != 0, tb = k % 2 != 0;
      Tensor a = Matrix(m, k, ta, 1, DType::kE5M2);
      Tensor b = Matrix(k, n, tb, 2, DType::kE4M3);
      Tensor fa = ConvertTo(a, DType::kFloat), fb = ConvertTo(b, DType::kFloat);
      Tensor c = Tensor::Allocate(DType::kFloat, {m, n});
      Tensor fc = Tensor::Allocate(DType::kFloat, {m, n});
      for (GemmProblem p :
           {Product(a, ta, b, tb, c), Product(fa, ta, fb, tb, fc)}) {
        p.scale = 0.7f;
        Gemm(p);
      }
      EXPECT_TRUE(Identical(c, fc)) << Name(isa);
    }
  }
}

TEST(Gemm, TheNumberOfThreadsChangesNothing) {
  int threads = NumThreads();
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (auto [m, k, n] : {std::array<int64_t, 3>{200, 700, 90},
                           std::array<int64_t, 3>{7, 600, 900}}) {
      for (DType dtype : {DType::kFloat, DType::kE4M3}) {
        Tensor a = Matrix(m, k, false, 1, dtype);
        Tensor b = Matrix(k, n, true, 2, dtype);
        std::vector<Tensor> results;
        for (int n_threads : {1, 2, 3}) {
          SetNumThreads(n_threads);
          results.push_back(Tensor::Zeros(DType::kFloat, {m, n}));
          GemmProblem p = Product(a, false, b, true, results.back());
          p.add = dtype == DType::kE4M3;
          Gemm(p);
        }
        EXPECT_TRUE(Identical(results[0], results[1])) << Name(isa);
        EXPECT_TRUE(Identical(results[0], results[2])) << Name(isa);
      }
    }
  }
  SetNumThreads(threads);
}

TEST(Gemm, Accumulates) {
  for (DType dtype : {DType::kFloat, DType::kDouble}) {
    Tensor a = ConvertTo(RandomNormal({7, 5}, 1), dtype);
    Tensor b = ConvertTo(RandomNormal({5, 3}, 2), dtype);
    Tensor c0 = ConvertTo(RandomNormal({7, 3}, 4), dtype);
    Tensor c = c0.Clone();
    GemmProblem p = Product(a, false, b, false, c);
    p.accumulate = true;
    Gemm(p);
    double bound = dtype == DType::kDouble ? 1e-14 : 1e-5;
    for (int64_t i = 0; i < c.size(); ++i) {
      double sum = DoubleAt(c0, i);
      for (int64_t l = 0; l < 5; ++l) {
        sum += MatrixAt(a, false, i / 3, l) * MatrixAt(b, false, l, i % 3);
      }
      EXPECT_NEAR(DoubleAt(c, i), sum, bound);
    }
    Tensor once = c.Clone();
    p.accumulate = false;
    p.add = true;
    p.scale = 2;
    Gemm(p);
    for (int64_t i = 0; i < c.size(); ++i) {
      double product = DoubleAt(once, i) - DoubleAt(c0, i);
      EXPECT_NEAR(DoubleAt(c, i), DoubleAt(once, i) + 2 * product, 2 * bound);
    }
    p.accumulate = true;
    EXPECT_THROW(Gemm(p), Error);
    p.scale = 1;
    EXPECT_THROW(Gemm(p), Error);
  }
}

TEST(Gemm, Double) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      Tensor a = Matrix(17, 33, ta, 1, DType::kDouble);
      Tensor b = Matrix(33, 9, tb, 2, DType::kDouble);
      Tensor bias = ConvertTo(RandomNormal({9}, 3), DType::kDouble);
      Tensor c = Tensor::Allocate(DType::kDouble, {17, 9});
      GemmProblem p = Product(a, ta, b, tb, c);
      p.scale = 0.25f;
      p.bias = bias.raw();
      Gemm(p);
      for (int64_t i = 0; i < c.size(); ++i) {
        double sum = 0;
        for (int64_t l = 0; l < 33; ++l) {
          sum += MatrixAt(a, ta, i / 9, l) * MatrixAt(b, tb, l, i % 9);
        }
        EXPECT_NEAR(DoubleAt(c, i), 0.25 * sum + DoubleAt(bias, i % 9), 1e-13);
      }
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
          sum += MatrixAt(a, false, i, l) * MatrixAt(b, false, l, j);
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

  // NaN · 0 is NaN; an old NaN in c is not read.
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

// 0.5 x + 1 settles at 2. Sums of bfloat16 pairs (0, 0.5), or of tiles of
// zeros, grow by the amount that a round adds.
TEST(Gemm, ArithmeticOnRegistersIsDone) {
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (const GemmKernels* kernels : {&FloatKernels(), &Bf16Kernels()}) {
      std::vector<float> sums(kRegisterSums, -1);
      int64_t two = kernels->registers(2, sums.data());
      int64_t used =
          std::ranges::count_if(sums, [](float x) { return x >= 0; });
      std::string name = kernels->name;
      EXPECT_EQ(two, 2 * used * 2 *
                         (name == "amx"          ? 32
                          : name == "avx512bf16" ? 2
                                                 : 1));
      kernels->registers(40, sums.data());
      float expected = name == "amx" ? 0 : name == "avx512bf16" ? 11 : 2;
      EXPECT_EQ(sums[0], expected) << name;
      EXPECT_EQ(sums[static_cast<size_t>(used) - 1], expected) << name;
    }
  }
}

TEST(Gemm, NamesItsKernels) {
  WithIsa with(Isa::kPortable);
  EXPECT_EQ(GemmBackend(), "packed portable, 8-bit portable");
}

}  // namespace
}  // namespace onnx_fp8
