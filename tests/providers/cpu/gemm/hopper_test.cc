// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/hopper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "tests/providers/cpu/isas.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

// 2^E of the value, and the value cut towards zero to a multiple of `unit`.
double PowerOf(double x) { return std::ldexp(1.0, std::ilogb(x)); }
double Cut(double x, double unit) { return std::trunc(x / unit) * unit; }

// The sum of one element as hopper.h describes it, in double.
double Expected(const std::vector<double>& products, bool fast) {
  double result = 0, sum = 0;
  size_t depth = products.size();
  for (size_t k = 0; k < depth; k += 32) {
    std::vector<double> terms = {sum};
    for (size_t i = k; i < std::min(k + 32, depth); ++i) {
      terms.push_back(products[i]);
    }
    double power = 0;
    for (double x : terms) {
      if (x != 0) power = std::max(power, PowerOf(x));
    }
    double exact = 0;
    for (double x : terms) {
      if (x != 0) exact += Cut(x, power / 8192);
    }
    sum = exact == 0 ? 0 : Cut(exact, PowerOf(exact) / 8192);
    if (!fast && (k + 32) % 128 == 0) {
      result = static_cast<float>(result + sum);
      sum = 0;
    }
  }
  return static_cast<float>(result + sum);
}

struct OwnedProblem {
  Tensor a, b, c;
  GemmProblem p;
};

// c (m,n) of random operands, stored transposed or not.
OwnedProblem Make(int64_t m, int64_t k, int64_t n, DType da, DType db, bool ta,
                  bool tb) {
  OwnedProblem x;
  x.a = ConvertTo(RandomNormal(ta ? Shape{k, m} : Shape{m, k}, 1), da);
  x.b = ConvertTo(RandomNormal(tb ? Shape{n, k} : Shape{k, n}, 2), db);
  x.c = Tensor::Zeros(DType::kFloat, {m, n});
  x.p = {.m = m,
         .n = n,
         .k = k,
         .a = {x.a.raw(), da, x.a.dim(1), ta},
         .b = {x.b.raw(), db, x.b.dim(1), tb},
         .c = x.c.raw(),
         .ldc = n};
  return x;
}

void ExpectDefinition(const OwnedProblem& x) {
  std::vector<double> rows = MatrixRows<double>(x.a, x.p.a.transposed);
  std::vector<double> columns = MatrixRows<double>(x.b, !x.p.b.transposed);
  for (int64_t i = 0; i < x.p.m; ++i) {
    for (int64_t j = 0; j < x.p.n; ++j) {
      std::vector<double> products;
      for (int64_t k = 0; k < x.p.k; ++k) {
        products.push_back(rows[i * x.p.k + k] * columns[j * x.p.k + k]);
      }
      ASSERT_EQ(x.c.data<float>()[i * x.p.n + j],
                Expected(products, x.p.fast_accum))
          << i << " " << j << " of " << x.p.m << "x" << x.p.k << "x" << x.p.n;
    }
  }
}

TEST(Hopper, EverySumIsByItsDefinition) {
  const int64_t kSizes[][3] = {{1, 1, 1},    {3, 31, 5},   {2, 32, 64},
                               {5, 33, 65},  {7, 127, 3},  {2, 128, 70},
                               {3, 129, 11}, {2, 700, 130}};
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (auto [m, k, n] : kSizes) {
      for (int bits = 0; bits < 16; ++bits) {
        OwnedProblem x = Make(m, k, n, bits & 1 ? DType::kE5M2 : DType::kE4M3,
                              DType::kE4M3, bits & 2, bits & 4);
        x.p.fast_accum = bits & 8;
        HopperGemm(x.p);
        ExpectDefinition(x);
      }
    }
  }
}

// SageAttention2: bits of a sum below the 14th are cut.
TEST(Hopper, SumsOfOnesEndWhereFourteenBitsEnd) {
  const int64_t k = 1 << 15;
  Tensor ones =
      ConvertTo(Tensor::From<float>({k}, std::vector<float>(size_t{k}, 1.0f)),
                DType::kE4M3);
  float c = 0;
  GemmProblem p = {.m = 1,
                   .n = 1,
                   .k = k,
                   .a = {ones.raw(), DType::kE4M3, k, false},
                   .b = {ones.raw(), DType::kE4M3, 1, false},
                   .c = &c,
                   .ldc = 1};
  HopperGemm(p);
  EXPECT_EQ(c, 32768);
  p.fast_accum = true;
  HopperGemm(p);
  EXPECT_EQ(c, 16384);
}

TEST(Hopper, ScaleBiasAndAccumulateAreGemms) {
  OwnedProblem x = Make(3, 40, 66, DType::kE4M3, DType::kE5M2, false, true);
  HopperGemm(x.p);
  Tensor plain = x.c.Clone();
  std::vector<float> bias(66);
  for (size_t j = 0; j < bias.size(); ++j) bias[j] = static_cast<float>(j) / 8;
  x.p.scale = 0.3f;
  x.p.bias = bias.data();
  HopperGemm(x.p);
  for (int64_t i = 0; i < x.c.size(); ++i) {
    float scaled = plain.data<float>()[i] * 0.3f;
    EXPECT_EQ(x.c.data<float>()[i], scaled + bias[static_cast<size_t>(i % 66)]);
  }
  x.p.scale = 1;
  x.p.bias = nullptr;
  x.p.accumulate = true;
  x.c = plain.Clone();
  x.p.c = x.c.raw();
  HopperGemm(x.p);
  for (int64_t i = 0; i < x.c.size(); ++i) {
    EXPECT_EQ(x.c.data<float>()[i], 2 * plain.data<float>()[i]);
  }
  x.p.accumulate = false;
  x.p.add = true;
  x.p.scale = 0.3f;
  HopperGemm(x.p);
  for (int64_t i = 0; i < x.c.size(); ++i) {
    float product = plain.data<float>()[i];
    EXPECT_EQ(x.c.data<float>()[i], 2 * product + product * 0.3f);
  }
}

// Scales of a depth are applied to the sums promoted there.
TEST(Hopper, ScalesMayVaryAlongK) {
  for (int64_t depth : {32, 128}) {
    OwnedProblem x = Make(3, 300, 70, DType::kE4M3, DType::kE4M3, false, false);
    int64_t groups = (300 + depth - 1) / depth;
    Tensor rows = RandomNormal({groups, 3}, 3);
    Tensor columns = RandomNormal({groups, 70}, 4);
    x.p.row_scale = rows.data<float>();
    x.p.column_scale = columns.data<float>();
    x.p.scale_depth = depth;
    HopperGemm(x.p);
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 70; ++j) {
        float sum = 0;
        for (int64_t g = 0; g < groups; ++g) {
          std::vector<double> products;
          for (int64_t k = g * depth;
               k < std::min<int64_t>(300, (g + 1) * depth); ++k) {
            products.push_back(MatrixAt(x.a, false, i, k) *
                               MatrixAt(x.b, false, k, j));
          }
          float scale = x.p.row_scale[g * 3 + i] * x.p.column_scale[g * 70 + j];
          sum += static_cast<float>(Expected(products, true)) * scale;
        }
        ASSERT_EQ(x.c.data<float>()[i * 70 + j], sum) << depth;
      }
    }
    // Without a depth they are the scales of whole rows and columns.
    x.p.scale_depth = 0;
    HopperGemm(x.p);
    OwnedProblem plain =
        Make(3, 300, 70, DType::kE4M3, DType::kE4M3, false, false);
    HopperGemm(plain.p);
    for (int64_t i = 0; i < plain.c.size(); ++i) {
      float scale = x.p.row_scale[i / 70] * x.p.column_scale[i % 70];
      ASSERT_EQ(x.c.data<float>()[i], plain.c.data<float>()[i] * scale);
    }
  }
}

TEST(Hopper, NaNAndInfinityStay) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  uint8_t a[] = {0x7C, 0x3C};              // e5m2: infinity, 1
  uint8_t b[] = {0x38, 0x7F, 0x38, 0x38};  // e4m3: 1, NaN; 1, 1
  float c[2];
  HopperGemm({.m = 1,
              .n = 2,
              .k = 2,
              .a = {a, DType::kE5M2, 2, false},
              .b = {b, DType::kE4M3, 2, false},
              .c = c,
              .ldc = 2});
  EXPECT_EQ(c[0], kInfinity);
  EXPECT_TRUE(std::isnan(c[1]));
}

// Gemm takes this path if it is told to, and only for 8-bit operands.
TEST(Hopper, GemmTakesItOnlyWhereItIsMeant) {
  OwnedProblem x = Make(4, 300, 9, DType::kE4M3, DType::kE4M3, false, false);
  OwnedProblem floats =
      Make(4, 300, 9, DType::kFloat, DType::kE4M3, false, false);
  auto run = [](const OwnedProblem& y) {
    Gemm(y.p);
    return y.c.Clone();
  };
  Tensor before = run(x), floats_before = run(floats);
  SetAccumulation(Accumulation::kHopper);
  Tensor after = run(x), floats_after = run(floats);
  SetAccumulation(Accumulation::kFloat);
  ExpectDefinition({x.a, x.b, after, x.p});
  auto same = [](const Tensor& s, const Tensor& t) {
    return std::equal(s.data<float>(), s.data<float>() + s.size(),
                      t.data<float>());
  };
  EXPECT_FALSE(same(before, after));
  EXPECT_TRUE(same(floats_before, floats_after));
}

}  // namespace
}  // namespace onnx_fp8
