// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "base/parallel.h"
#include "onnx_fp8/float8.h"
#include "providers/cpu/fp8/dequantize_block.h"
#include "tests/providers/cpu/body_runner.h"
#include "tests/providers/cpu/fp8/quantization.h"
#include "tests/providers/cpu/isas.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

// Random codes of a stored matrix, and a random scale for each of its blocks.
struct Quantized {
  Tensor q, scale;
  Blocks blocks;
};

enum class Scales { kAny, kPowersOfTwo, kE8M0, kScalar };

Quantized Random(const Shape& shape, const Blocks& blocks, Scales scales,
                 DType format, uint64_t seed) {
  Quantized x = {ConvertTo(RandomNormal(shape, seed), format), {}, blocks};
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  auto count = [](int64_t size, int64_t block) {
    return block == 0 ? 1 : (size + block - 1) / block;
  };
  Shape grid = {count(rows, blocks.rows), count(shape.back(), blocks.columns)};
  if (scales == Scales::kScalar) grid = {};
  x.scale = RandomNormal(grid, seed + 50);
  for (int64_t i = 0; i < x.scale.size(); ++i) {
    float& s = x.scale.data<float>()[i];
    s = std::fabs(s) + 0.01f;
    bool exact = scales == Scales::kPowersOfTwo || scales == Scales::kE8M0;
    if (exact) s = std::exp2(std::floor(8 * s) - 10);
  }
  if (scales == Scales::kE8M0) x.scale = ConvertTo(x.scale, DType::kE8M0);
  return x;
}

Attributes AttributesOf(const Quantized& a, const Quantized& b, int64_t ta,
                        int64_t tb) {
  return {{"transA", ta},
          {"transB", tb},
          {"a_block_rows", a.blocks.rows},
          {"a_block_columns", a.blocks.columns},
          {"b_block_rows", b.blocks.rows},
          {"b_block_columns", b.blocks.columns}};
}

Tensor Product(const Quantized& a, const Quantized& b, int64_t ta, int64_t tb,
               const Tensor& bias = {}) {
  std::vector<Tensor> in = {a.q, a.scale, b.q, b.scale};
  if (bias.defined()) in.push_back(bias);
  return RunNode(bias.defined() ? "ScaledMatMulBlockBias" : "ScaledMatMulBlock",
                 in, AttributesOf(a, b, ta, tb), 1, kDomain)[0];
}

// The stored matrix in double, element by element.
std::vector<double> Values(const Quantized& x) {
  int64_t columns = x.q.dim(-1);
  std::vector<double> values;
  for (int64_t i = 0; i < x.q.size(); ++i) {
    int64_t row = i / columns, column = i % columns;
    int64_t down = x.blocks.rows == 0 ? 0 : row / x.blocks.rows;
    int64_t right = x.blocks.columns == 0 ? 0 : column / x.blocks.columns;
    int64_t across = x.scale.rank() == 0 ? 1 : x.scale.dim(1);
    values.push_back(DoubleAt(x.q, i) *
                     DoubleAt(x.scale, down * across + right));
  }
  return values;
}

// Higham's bound of an fp32 sum of K products (3.1), plus one rounding each of
// the operands, the scales' product, the scaled sum and the bias.
void ExpectClose(const Tensor& y, const Quantized& a, const Quantized& b,
                 bool ta, bool tb, const Tensor& bias) {
  std::vector<double> x = Values(a), w = Values(b);
  int64_t n = y.dim(-1), m = n == 0 ? 0 : y.size() / n;
  int64_t a_columns = a.q.dim(-1), b_columns = b.q.dim(-1);
  int64_t k = ta ? (a_columns == 0 ? 0 : a.q.size() / a_columns) : a_columns;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = bias.defined() ? DoubleAt(bias, j) : 0;
      double magnitude = std::fabs(sum);
      for (int64_t l = 0; l < k; ++l) {
        auto at_a =
            static_cast<size_t>(ta ? l * a_columns + i : i * a_columns + l);
        auto at_b =
            static_cast<size_t>(tb ? j * b_columns + l : l * b_columns + j);
        sum += x[at_a] * w[at_b];
        magnitude += std::fabs(x[at_a] * w[at_b]);
      }
      double bound = static_cast<double>(k + 5) * 0x1p-24 * magnitude;
      ASSERT_NEAR(DoubleAt(y, i * n + j), sum, bound)
          << i << ", " << j << " of " << ToString(a.q.shape()) << ta << " "
          << ToString(b.q.shape()) << tb;
    }
  }
}

struct Sizes {
  int64_t m, k, n;
};

const Sizes kSizes[] = {{1, 1, 1},     {3, 5, 7}, {17, 130, 33}, {40, 31, 9},
                        {37, 400, 65}, {5, 0, 3}, {0, 5, 3},     {4, 5, 0}};

// Blocks of both operands along the outer axis and along K: rows and columns,
// the usual blocks, the MX formats' blocks, and depths that fit no partial sum.
struct Form {
  int64_t am, ak, bk, bn;
};
const Form kForms[] = {{0, 0, 0, 0},   {1, 0, 0, 1},         {1, 0, 0, 0},
                       {0, 0, 0, 1},   {1, 128, 128, 128},   {1, 128, 128, 1},
                       {1, 32, 32, 1}, {128, 128, 128, 128}, {1, 64, 0, 1},
                       {1, 0, 128, 1}, {1, 64, 32, 1},       {2, 3, 5, 7},
                       {1, 128, 7, 1}, {0, 48, 0, 2}};

Quantized Stored(int64_t outer, int64_t k, bool k_is_columns, int64_t b_outer,
                 int64_t b_k, Scales scales, DType format, uint64_t seed) {
  return Random(k_is_columns ? Shape{outer, k} : Shape{k, outer},
                k_is_columns ? Blocks{b_outer, b_k} : Blocks{b_k, b_outer},
                scales, format, seed);
}

template <typename Fn>
void ForCases(Fn fn) {
  int count = 0;
  for (const Sizes& s : kSizes) {
    for (const Form& f : kForms) {
      for (Scales scales :
           {Scales::kAny, Scales::kPowersOfTwo, Scales::kE8M0}) {
        // All orientations, formats and kinds, but not all combinations.
        ++count;
        bool ta = count % 2 != 0, tb = count / 2 % 2 != 0;
        DType format = count % 5 < 3 ? DType::kE4M3 : DType::kE5M2;
        Scales other = count % 7 == 0 ? Scales::kAny : scales;
        Quantized a = Stored(s.m, s.k, !ta, f.am, f.ak, scales, format, 1);
        Quantized b = Stored(s.n, s.k, tb, f.bn, f.bk, other, DType::kE4M3, 2);
        Tensor bias = count % 3 == 0 ? RandomNormal({s.n}, 3) : Tensor();
        fn(a, b, ta, tb, bias);
      }
    }
  }
}

TEST(ScaledMatMulBlock, IsCloseToTheProductOfTheDequantizedOperands) {
  ForCases([](const Quantized& a, const Quantized& b, bool ta, bool tb,
              const Tensor& bias) {
    Tensor y = Product(a, b, ta, tb, bias);
    ExpectClose(y, a, b, ta, tb, bias);
    if (bias.defined()) return;
    Tensor addend = RandomNormal(y.shape(), 4);
    Tensor added =
        RunNode("ScaledMatMulBlockAdd", {a.q, a.scale, b.q, b.scale, addend},
                AttributesOf(a, b, ta, tb), 1, kDomain)[0];
    EXPECT_TRUE(Identical(added, RunNode1("Add", {addend, y})));
  });
}

TEST(ScaledMatMulBlock, BodyIsCloseToo) {
  ForCases([](const Quantized& a, const Quantized& b, bool ta, bool tb,
              const Tensor& bias) {
    std::vector<Tensor> in = {a.q, a.scale, b.q, b.scale};
    if (bias.defined()) in.push_back(bias);
    Tensor y =
        RunBody(bias.defined() ? "ScaledMatMulBlockBias" : "ScaledMatMulBlock",
                in, AttributesOf(a, b, ta, tb), 1)[0];
    EXPECT_EQ(y.shape(), Product(a, b, ta, tb, bias).shape());
    ExpectClose(y, a, b, ta, tb, bias);
  });
}

TEST(ScaledMatMulBlock, EveryInstructionSetIsCloseAndThreadsChangeNothing) {
  int threads = NumThreads();
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    int count = 0;
    for (const Form& f : kForms) {
      for (Scales scales : {Scales::kAny, Scales::kPowersOfTwo}) {
        bool ta = ++count % 2 != 0, tb = count / 2 % 2 != 0;
        Quantized a = Stored(34, 300, !ta, f.am, f.ak, scales, DType::kE5M2, 1);
        Quantized b = Stored(40, 300, tb, f.bn, f.bk, scales, DType::kE4M3, 2);
        Tensor bias = RandomNormal({40}, 3);
        SetNumThreads(1);
        Tensor one = Product(a, b, ta, tb, bias);
        SetNumThreads(2);
        EXPECT_TRUE(Identical(one, Product(a, b, ta, tb, bias)));
        ExpectClose(one, a, b, ta, tb, bias);
      }
    }
  }
  SetNumThreads(threads);
}

TEST(ScaledMatMulBlock, OneScaleEachIsScaledMatMul) {
  Quantized a = Random({2, 3, 70}, {0, 0}, Scales::kScalar, DType::kE5M2, 1);
  Quantized b = Random({70, 33}, {0, 0}, Scales::kScalar, DType::kE4M3, 2);
  Tensor bias = RandomNormal({33}, 3);
  std::vector<Tensor> in = {a.q, a.scale, b.q, b.scale, bias};
  Tensor y =
      RunNode("ScaledMatMulBias", in,
              {{"transA", int64_t{0}}, {"transB", int64_t{0}}}, 1, kDomain)[0];
  EXPECT_TRUE(Identical(Product(a, b, 0, 0, bias), y));
  a.scale = a.scale.Reshaped({1, 1});
  EXPECT_TRUE(Identical(Product(a, b, 0, 0, bias), y));
}

// A scalar for one operand and columns' scales for the other; leading axes of a
// are rows.
TEST(ScaledMatMulBlock, MixesAScalarWithBlocks) {
  for (Blocks blocks : {Blocks{0, 1}, Blocks{32, 1}, Blocks{3, 2}}) {
    Quantized a = Random({2, 3, 70}, {0, 0}, Scales::kScalar, DType::kE5M2, 1);
    Quantized b = Random({70, 33}, blocks, Scales::kAny, DType::kE4M3, 2);
    Tensor y = Product(a, b, 0, 0);
    EXPECT_EQ(y.shape(), (Shape{2, 3, 33}));
    ExpectClose(y, a, b, false, false, {});
    Quantized c = Random({2, 3, 9}, {1, 0}, Scales::kAny, DType::kE4M3, 4);
    y = Product(a, c, 1, 0);
    EXPECT_EQ(y.shape(), (Shape{70, 9}));
    ExpectClose(y, a, c, true, false, {});
  }
}

// If all values are one, sums of powers of two are exact in any order.
TEST(ScaledMatMulBlock, TakesEveryBlocksOwnScale) {
  Tensor ones = Tensor::Allocate(DType::kE4M3, {3, 160});
  for (int64_t i = 0; i < ones.size(); ++i) {
    ones.data<E4M3>()[i] = EncodeE4M3(1.0f);
  }
  for (Scales scales : {Scales::kPowersOfTwo, Scales::kE8M0}) {
    for (int64_t depth : {32, 40, 3}) {
      Quantized a = Random({3, 160}, {1, depth}, scales, DType::kE4M3, 6);
      Quantized b = Random({3, 160}, {2, depth}, scales, DType::kE4M3, 7);
      a.q = b.q = ones;
      for (Tensor* scale : {&a.scale, &b.scale}) {
        Tensor powers = Tensor::Allocate(DType::kFloat, scale->shape());
        for (int64_t i = 0; i < powers.size(); ++i) {
          powers.data<float>()[i] = static_cast<float>(1 << (i * 7 % 5));
        }
        *scale = ConvertTo(powers, scale->dtype());
      }
      Tensor y = Product(a, b, 0, 1);
      std::vector<double> x = Values(a), w = Values(b);
      for (size_t i = 0; i < 9; ++i) {
        double sum = 0;
        for (size_t l = 0; l < 160; ++l) {
          sum += x[i / 3 * 160 + l] * w[i % 3 * 160 + l];
        }
        EXPECT_EQ(y.data<float>()[i], static_cast<float>(sum));
      }
    }
  }
}

// Powers of two outside bfloat16's range take another way.
TEST(ScaledMatMulBlock, ExtremeScales) {
  for (float s :
       {0x1p-126f, 0x1p-111f, 0x1p-110f, 0x1p100f, 0x1p111f, 0x1p112f}) {
    for (float t : {0x1p-9f, 1.0f / s}) {
      Quantized a = Random({3, 64}, {1, 32}, Scales::kAny, DType::kE5M2, 1);
      Quantized b = Random({64, 4}, {32, 1}, Scales::kAny, DType::kE4M3, 2);
      if (!std::isnormal(t)) continue;
      for (float& x : std::span(a.scale.data<float>(), 6)) x = s;
      for (float& x : std::span(b.scale.data<float>(), 8)) x = t;
      if (s * t < 0x1p-80f || s * t > 0x1p80f) continue;
      ExpectClose(Product(a, b, 0, 0), a, b, false, false, {});
    }
  }
}

TEST(ExactInBFloat16, OnlyPowersOfTwoInItsRange) {
  EXPECT_TRUE(ExactInBFloat16({1.0f, 0x1p-110f, 0x1p111f}));
  for (float s : {0x1p-111f, 0x1p112f, 1.5f, 0.0f, -1.0f, INFINITY, NAN}) {
    EXPECT_FALSE(ExactInBFloat16({1.0f, s})) << s;
  }
}

// Every code times the smallest and the largest possible scale.
TEST(DequantizeToBFloat16, IsExact) {
  Tensor q = Tensor::Allocate(DType::kE4M3, {4, 64});
  for (int64_t i = 0; i < 256; ++i) {
    q.data<E4M3>()[i] = {static_cast<uint8_t>(i)};
  }
  for (DType dtype : {DType::kE4M3, DType::kE5M2}) {
    for (Isa isa : RunnableIsas()) {
      WithIsa with(isa);
      for (float scale : {0x1p-110f, 0.25f, 1.0f, 0x1p111f}) {
        BlockGrid grid = {4, 64, 4, 64, 1, 1};
        std::vector<BFloat16> to(256);
        DequantizeToBFloat16(dtype, q.raw(), grid, {scale},
                             reinterpret_cast<uint16_t*>(to.data()));
        for (size_t i = 0; i < 256; ++i) {
          auto code = static_cast<uint8_t>(i);
          float value =
              dtype == DType::kE4M3 ? Decode(E4M3{code}) : Decode(E5M2{code});
          float got = Decode(to[i]);
          EXPECT_TRUE(got == value * scale ||
                      (std::isnan(got) && std::isnan(value)))
              << i << " times " << scale;
        }
      }
    }
  }
}

TEST(ScaledMatMulBlock, NonFiniteCodesAndScalesAreSeen) {
  Quantized a = Random({3, 64}, {1, 32}, Scales::kPowersOfTwo, DType::kE5M2, 1);
  Quantized b = Random({64, 4}, {32, 1}, Scales::kPowersOfTwo, DType::kE4M3, 2);
  a.q.data<E5M2>()[64] = {0x7E};  // NaN
  Tensor y = Product(a, b, 0, 0);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(std::isnan(y.data<float>()[i]), i / 4 == 1);
  }
  b.scale = ConvertTo(b.scale, DType::kE8M0);
  b.scale.data<E8M0>()[4 + 2] = {255};  // NaN
  y = Product(a, b, 0, 0);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(std::isnan(y.data<float>()[i]), i / 4 == 1 || i % 4 == 2);
  }
}

TEST(ScaledMatMulBlock, RefusesWhatDoesNotFit) {
  Quantized a = Random({3, 5}, {1, 0}, Scales::kAny, DType::kE4M3, 1);
  Quantized b = Random({5, 7}, {0, 1}, Scales::kAny, DType::kE4M3, 2);
  EXPECT_NO_THROW(Product(a, b, 0, 0));
  EXPECT_THROW(Product(a, b, 1, 0), Error);
  EXPECT_THROW(Product(a, b, 0, 1), Error);
  EXPECT_THROW(Product(a, b, 0, 0, RandomNormal({3}, 1)), Error);
  Quantized bad = a;
  bad.blocks = {0, 1};
  EXPECT_THROW(Product(bad, b, 0, 0), Error);
  bad = a;
  bad.q = ConvertTo(a.q, DType::kFloat);
  EXPECT_THROW(Product(bad, b, 0, 0), Error);
  bad = a;
  bad.scale = ConvertTo(a.scale, DType::kDouble);
  EXPECT_THROW(Product(bad, b, 0, 0), Error);
  bad = b;
  bad.blocks.rows = -1;
  EXPECT_THROW(Product(a, bad, 0, 0), Error);
}

TEST(BlockInference, Products) {
  auto y = [](Shape a, Shape a_scale, Blocks a_blocks, Shape b, Shape b_scale,
              Blocks b_blocks, int64_t ta, int64_t tb) {
    return Inferred(
        "ScaledMatMulBlock",
        {{DType::kE4M3, a},
         {DType::kFloat, a_scale},
         {DType::kE5M2, b},
         {DType::kE8M0, b_scale}},
        AttributesOf({{}, {}, a_blocks}, {{}, {}, b_blocks}, ta, tb), 1)[0];
  };
  EXPECT_EQ(y({2, 3, 64}, {6, 2}, {1, 32}, {64, 7}, {2, 7}, {32, 1}, 0, 0),
            "float[2,3,7]");
  EXPECT_EQ(y({2, 3, 64}, {6, 2}, {1, 32}, {6, 7}, {6, 1}, {1, 0}, 1, 0),
            "float[64,7]");
  EXPECT_EQ(y({4, 64}, {}, {0, 0}, {9, 64}, {9, 1}, {1, 0}, 0, 1),
            "float[4,9]");
  EXPECT_THROW(y({4, 64}, {}, {0, 1}, {9, 64}, {9, 1}, {1, 0}, 0, 1), Error);
  EXPECT_THROW(y({4, 64}, {}, {0, 0}, {9, 64}, {9, 2}, {1, 0}, 0, 1), Error);
  EXPECT_THROW(y({4, 64}, {}, {0, 0}, {9, 60}, {9, 1}, {1, 0}, 0, 1), Error);
}

}  // namespace
}  // namespace onnx_fp8
