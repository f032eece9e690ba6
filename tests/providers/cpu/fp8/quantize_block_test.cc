// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/parallel.h"
#include "onnx_fp8/float8.h"
#include "tests/providers/cpu/body_runner.h"
#include "tests/providers/cpu/fp8/quantization.h"
#include "tests/providers/cpu/isas.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

// Tensor, rows, columns, 1 x 128 and similar blocks, and sizes that divide
// nothing.
const Blocks kBlocks[] = {{0, 0},   {1, 0},     {0, 1},   {1, 128},
                          {128, 1}, {128, 128}, {1, 32},  {32, 1},
                          {2, 3},   {0, 5},     {150, 7}, {1000, 1000}};

struct Rule {
  DType to = DType::kE4M3;
  int64_t pow2 = 0;
  DType scale_to = DType::kFloat;
  float q_max = 0;  // 0: the format's
};

Attributes AttributesOf(const Blocks& b, const Rule& rule) {
  return {{"to", static_cast<int64_t>(rule.to)},
          {"q_max", rule.q_max > 0 ? rule.q_max : Float8Max(rule.to)},
          {"block_rows", b.rows},
          {"block_columns", b.columns},
          {"pow2", rule.pow2},
          {"scale_to", static_cast<int64_t>(rule.scale_to)}};
}

std::vector<Tensor> Quantize(const Tensor& x, const Blocks& b,
                             const Rule& rule) {
  return RunNode("QuantizeBlock", {x}, AttributesOf(b, rule), 3, kDomain);
}

// --- the formulas, one element after the other ------------------------------

struct Matrix {
  int64_t rows, columns;
};

Matrix MatrixOf(const Tensor& x) {
  int64_t rows = 1;
  for (int64_t axis = 0; axis < x.rank() - 1; ++axis) rows *= x.dim(axis);
  return {rows, x.dim(-1)};
}

int64_t CountOf(int64_t size, int64_t block) {
  return block == 0 ? 1 : (size + block - 1) / block;
}

int64_t BlockOf(int64_t at, int64_t block) {
  return block == 0 ? 0 : at / block;
}

// The factor and the scale of a block whose largest finite |x| is a.
std::pair<float, float> FactorAndScale(float a, const Rule& rule) {
  float v = std::max(a, 1e-12f);
  if (rule.pow2 == 2) {
    int emax = rule.to == DType::kE4M3 ? 8 : 15;
    int exponent = std::ilogb(v) - emax;
    return {std::ldexp(1.0f, -exponent), std::ldexp(1.0f, exponent)};
  }
  double q_max = rule.q_max > 0 ? rule.q_max : Float8Max(rule.to);
  double ratio = q_max / static_cast<double>(v);
  ratio = std::min(std::max(ratio, 0x1p-126), 0x1p126);
  auto factor = static_cast<float>(ratio);
  if (rule.pow2 == 1) factor = std::ldexp(1.0f, std::ilogb(factor));
  return {factor, 1.0f / factor};
}

struct Expected {
  Tensor q, scale;
  float amax = 0;
};

Expected Reference(const Tensor& x, const Blocks& b, const Rule& rule) {
  auto [rows, columns] = MatrixOf(x);
  int64_t down = CountOf(rows, b.rows), across = CountOf(columns, b.columns);
  std::vector<float> a(static_cast<size_t>(down * across), 0.0f);
  Expected expected = {Tensor::Allocate(rule.to, x.shape()),
                       Tensor::Allocate(DType::kFloat, {down, across})};
  auto block_of = [&](int64_t i) {
    return static_cast<size_t>(BlockOf(i / columns, b.rows) * across +
                               BlockOf(i % columns, b.columns));
  };
  for (int64_t i = 0; i < x.size(); ++i) {
    float magnitude = std::fabs(x.data<float>()[i]);
    if (!std::isfinite(magnitude)) {
      expected.amax = kInfinity;
      continue;
    }
    a[block_of(i)] = std::max(a[block_of(i)], magnitude);
    expected.amax = std::max(expected.amax, magnitude);
  }
  for (size_t k = 0; k < a.size(); ++k) {
    expected.scale.data<float>()[k] = FactorAndScale(a[k], rule).second;
  }
  for (int64_t i = 0; i < x.size(); ++i) {
    float y = x.data<float>()[i] * FactorAndScale(a[block_of(i)], rule).first;
    static_cast<uint8_t*>(expected.q.raw())[i] =
        rule.to == DType::kE4M3 ? EncodeE4M3(y).bits : EncodeE5M2(y).bits;
  }
  return expected;
}

void ExpectFormula(const Tensor& x, const Blocks& b, const Rule& rule) {
  Expected expected = Reference(x, b, rule);
  auto out = Quantize(x, b, rule);
  std::string what = Concat(ToString(x.shape()), " in ", b.rows, "x", b.columns,
                            " pow2 ", rule.pow2, " ", Name(rule.to));
  EXPECT_TRUE(Identical(out[0], expected.q)) << what;
  EXPECT_TRUE(Identical(ConvertTo(out[1], DType::kFloat), expected.scale))
      << what;
  EXPECT_EQ(out[1].dtype(), rule.scale_to) << what;
  EXPECT_EQ(*out[2].data<float>(), expected.amax) << what;
}

// Values of many magnitudes, with zeros among them.
Tensor Wide(const Shape& shape, uint64_t seed) {
  Tensor x = RandomNormal(shape, seed);
  Tensor powers = RandomNormal(shape, seed + 100);
  for (int64_t i = 0; i < x.size(); ++i) {
    float& v = x.data<float>()[i];
    v = i % 11 == 3
            ? 0.0f
            : std::ldexp(v, static_cast<int>(4 * powers.data<float>()[i]));
  }
  return x;
}

std::vector<Tensor> WideTensors() {
  std::vector<Tensor> all;
  for (const Shape& shape : {Shape{1, 1}, Shape{7, 13}, Shape{2, 3, 17},
                             Shape{131, 1}, Shape{1, 257}, Shape{130, 131},
                             Shape{0, 4}, Shape{4, 0}, Shape{2, 0, 3}}) {
    all.push_back(Wide(shape, 1));
  }
  for (float special : {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 1e-40f,
                        -kLargest, 1e-12f, 1e-13f, 448.0f, 0x1.fffffep3f}) {
    Tensor t = Wide({9, 35}, 2);
    for (int64_t i : {0, 40, 41, 314}) t.data<float>()[i] = special;
    all.push_back(t);
    all.push_back(Tensor::From<float>({2, 5}, std::vector<float>(10, special)));
  }
  return all;
}

std::vector<Rule> AllRules() {
  std::vector<Rule> rules;
  for (DType to : {DType::kE4M3, DType::kE5M2}) {
    for (int64_t pow2 : {0, 1, 2}) rules.push_back({to, pow2});
  }
  return rules;
}

TEST(QuantizeBlock, FollowsItsFormula) {
  for (const Tensor& x : WideTensors()) {
    for (const Blocks& b : kBlocks) {
      for (const Rule& rule : AllRules()) ExpectFormula(x, b, rule);
    }
  }
}

TEST(QuantizeBlock, EveryInstructionSetAndNumberOfThreadsGivesTheSameBits) {
  Tensor x = Wide({2, 151, 260}, 5);
  x.data<float>()[777] = -kInfinity;
  int threads = NumThreads();
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (int n : {1, 2}) {
      SetNumThreads(n);
      for (const Blocks& b : kBlocks) ExpectFormula(x, b, {});
    }
  }
  SetNumThreads(threads);
}

TEST(QuantizeBlock, ScalesArePowersOfTwoRoundedUpOrByTheFormatsExponent) {
  struct Case {
    float a;
    DType to;
    float up, floor;
  };
  // 448 = 1.75 · 2^8: just above it the rounded scale doubles, but the scale of
  // FLOOR doubles only at 512.
  const Case kCases[] = {{448.0f, DType::kE4M3, 1, 1},
                         {0x1.c00002p8f, DType::kE4M3, 2, 1},
                         {0x1.fffffep8f, DType::kE4M3, 2, 1},
                         {512.0f, DType::kE4M3, 2, 2},
                         {57344.0f, DType::kE5M2, 1, 1},
                         {0x1.c00002p15f, DType::kE5M2, 2, 1},
                         {kLargest, DType::kE4M3, 0x1p120f, 0x1p119f},
                         {kLargest, DType::kE5M2, 0x1p113f, 0x1p112f},
                         {0.0f, DType::kE4M3, 0x1p-48f, 0x1p-48f},
                         {1e-45f, DType::kE5M2, 0x1p-55f, 0x1p-55f}};
  for (const Case& test : kCases) {
    Tensor x = Tensor::From<float>({1, 2}, std::vector<float>{test.a, 0.0f});
    for (DType scale_to : {DType::kFloat, DType::kE8M0}) {
      auto scale = [&](int64_t pow2) {
        return DoubleAt(Quantize(x, {1, 0}, {test.to, pow2, scale_to})[1], 0);
      };
      EXPECT_EQ(scale(1), test.up) << test.a;
      EXPECT_EQ(scale(2), test.floor) << test.a;
    }
  }
}

// Whatever q_max is, factor and scale stay normal floats.
TEST(QuantizeBlock, BoundsTheFactor) {
  for (float q_max : {1e-38f, 1e-30f, 0.25f, 1e30f, kLargest}) {
    for (float a : {0.0f, 1.0f, kLargest}) {
      Tensor x = Tensor::From<float>({1, 2}, std::vector<float>{a, -a});
      for (int64_t pow2 : {0, 1, 2}) {
        Rule rule = {DType::kE4M3, pow2, DType::kFloat, q_max};
        ExpectFormula(x, {1, 0}, rule);
        float scale = *Quantize(x, {1, 0}, rule)[1].data<float>();
        EXPECT_TRUE(std::isnormal(scale)) << q_max << " " << a;
      }
    }
  }
}

TEST(QuantizeBlock, ScalesOfEightBits) {
  Tensor x = Wide({9, 70}, 3);
  x.data<float>()[3] = kNaN;
  for (int64_t pow2 : {1, 2}) {
    for (const Blocks& b : kBlocks) {
      ExpectFormula(x, b, {DType::kE5M2, pow2, DType::kE8M0});
    }
  }
}

TEST(QuantizeBlock, IsQuantizeTensorForOneBlock) {
  for (const Tensor& x : WideTensors()) {
    auto block = Quantize(x, {0, 0}, {});
    auto tensor = RunNode("QuantizeTensor", {x},
                          {{"to", int64_t{17}}, {"q_max", 448.0f}}, 3, kDomain);
    EXPECT_TRUE(Identical(block[0], tensor[0]));
    EXPECT_TRUE(Identical(block[1].Reshaped({}), tensor[1]));
    EXPECT_TRUE(Identical(block[2], tensor[2]));
  }
}

TEST(QuantizeBlock, KernelEqualsBody) {
  const Rule kRules[] = {{DType::kE4M3, 0},
                         {DType::kE5M2, 1},
                         {DType::kE4M3, 2},
                         {DType::kE5M2, 2, DType::kE8M0}};
  for (const Tensor& x : WideTensors()) {
    for (const Blocks& b : kBlocks) {
      // Not every shape of blocks needs every special value.
      if (x.dim(0) == 9 && b.columns != 3 && b.columns != 0) continue;
      for (const Rule& rule : kRules) {
        ExpectBodyAndKernelAgree("QuantizeBlock", {x}, AttributesOf(b, rule),
                                 3);
      }
    }
  }
}

TEST(QuantizeBlock, RefusesWhatDoesNotFit) {
  Tensor x = RandomNormal({4, 6}, 1);
  Quantize(x, {2, 3}, {});
  EXPECT_THROW(Quantize(x, {-1, 3}, {}), Error);
  EXPECT_THROW(Quantize(x, {2, -1}, {}), Error);
  EXPECT_THROW(Quantize(x.Reshaped({24}), {2, 3}, {}), Error);
  EXPECT_THROW(Quantize(ConvertTo(x, DType::kDouble), {2, 3}, {}), Error);
  EXPECT_THROW(Quantize(x, {2, 3}, {DType::kE4M3, 3}), Error);
  EXPECT_THROW(Quantize(x, {2, 3}, {DType::kE4M3, 0, DType::kE8M0}), Error);
  EXPECT_THROW(Quantize(x, {2, 3}, {DType::kE4M3, 1, DType::kDouble}), Error);
  EXPECT_THROW(
      RunNode("QuantizeBlock", {x},
              {{"block_rows", int64_t{1}}, {"block_columns", int64_t{0}}}, 3,
              kDomain),
      Error);
}

// --- back -------------------------------------------------------------------

Attributes AttributesOf(const Blocks& b) {
  return {{"block_rows", b.rows}, {"block_columns", b.columns}};
}

TEST(DequantizeBlock, FollowsItsFormulaAndItsBody) {
  for (const Tensor& x : WideTensors()) {
    auto [rows, columns] = MatrixOf(x);
    for (const Blocks& b : kBlocks) {
      for (DType to : {DType::kE4M3, DType::kE5M2}) {
        for (DType scale_to : {DType::kFloat, DType::kE8M0}) {
          int64_t pow2 = scale_to == DType::kE8M0 ? 1 : 0;
          auto out = Quantize(x, b, {to, pow2, scale_to});
          std::vector<Tensor> in = {out[0], out[1]};
          Tensor y =
              RunNode("DequantizeBlock", in, AttributesOf(b), 1, kDomain)[0];
          ASSERT_EQ(y.shape(), x.shape());
          for (int64_t i = 0; i < x.size(); ++i) {
            int64_t block = BlockOf(i / columns, b.rows) * out[1].dim(1) +
                            BlockOf(i % columns, b.columns);
            auto expected = static_cast<float>(DoubleAt(out[0], i)) *
                            static_cast<float>(DoubleAt(out[1], block));
            float got = y.data<float>()[i];
            EXPECT_TRUE(got == expected ||
                        (std::isnan(got) && std::isnan(expected)));
          }
          if (to == DType::kE4M3) {
            ExpectBodyAndKernelAgree("DequantizeBlock", in, AttributesOf(b), 1);
          }
        }
      }
    }
  }
}

TEST(DequantizeBlock, EveryInstructionSetAndNumberOfThreadsGivesTheSameBits) {
  Tensor x = Wide({151, 260}, 5);
  int threads = NumThreads();
  for (const Blocks& b : kBlocks) {
    auto out = Quantize(x, b, {});
    Tensor expected =
        RunBody("DequantizeBlock", {out[0], out[1]}, AttributesOf(b), 1)[0];
    for (Isa isa : RunnableIsas()) {
      WithIsa with(isa);
      for (int n : {1, 2}) {
        SetNumThreads(n);
        EXPECT_TRUE(Identical(RunNode("DequantizeBlock", {out[0], out[1]},
                                      AttributesOf(b), 1, kDomain)[0],
                              expected));
      }
    }
  }
  SetNumThreads(threads);
}

TEST(DequantizeBlock, TakesAScalarWhereThereIsOneBlock) {
  Tensor q = ConvertTo(RandomNormal({3, 5}, 1), DType::kE4M3);
  std::vector<Tensor> in = {q, Tensor::Scalar(0.3f)};
  auto run = [&](const Blocks& b) {
    return RunNode("DequantizeBlock", in, AttributesOf(b), 1, kDomain)[0];
  };
  EXPECT_EQ(run({0, 0}).data<float>()[7],
            static_cast<float>(DoubleAt(q, 7)) * 0.3f);
  EXPECT_THROW(run({1, 0}), Error);
  ExpectBodyAndKernelAgree("DequantizeBlock", in, AttributesOf({0, 0}), 1);
  in[1] = RandomNormal({5, 1}, 1);
  EXPECT_THROW(run({0, 1}), Error);
  in[1] = ConvertTo(RandomNormal({1, 5}, 1), DType::kDouble);
  EXPECT_THROW(run({0, 1}), Error);
  in = {ConvertTo(q, DType::kFloat), Tensor::Scalar(0.3f)};
  EXPECT_THROW(run({0, 0}), Error);
}

// --- inference without values -----------------------------------------------

TEST(BlockInference, ShapesOfScales) {
  auto scales = [](std::optional<Shape> x, const Blocks& b, Rule rule = {}) {
    return Inferred("QuantizeBlock", {{DType::kFloat, std::move(x)}},
                    AttributesOf(b, rule), 3)[1];
  };
  EXPECT_EQ(scales(Shape{2, 3, 100}, {1, 32}), "float[6,4]");
  EXPECT_EQ(scales(Shape{2, 3, 100}, {4, 0}), "float[2,1]");
  EXPECT_EQ(scales(Shape{0, 100}, {0, 50}), "float[1,2]");
  EXPECT_EQ(scales(Shape{0, 100}, {8, 50}), "float[0,2]");
  EXPECT_EQ(scales(Shape{-1, 100}, {8, 50}), "float[?,2]");
  EXPECT_EQ(scales({}, {0, 50}), "float[1,?]");
  EXPECT_EQ(scales(Shape{4, 4}, {1, 2}, {DType::kE5M2, 2, DType::kE8M0}),
            "float8e8m0[4,2]");
  EXPECT_THROW(scales(Shape{4}, {1, 2}), Error);
  EXPECT_THROW(scales(Shape{4, 4}, {-1, 2}), Error);
  EXPECT_THROW(scales(Shape{4, 4}, {1, 2}, {DType::kE5M2, 0, DType::kE8M0}),
               Error);
  EXPECT_THROW(scales(Shape{4, 4}, {1, 2}, {DType::kE5M2, 3}), Error);
  EXPECT_THROW(scales(Shape{4, 4}, {1, 2}, {DType::kFloat, 0}), Error);
}

TEST(BlockInference, ScalesMustFit) {
  auto y = [](Shape q, Shape scale, const Blocks& b,
              DType dtype = DType::kFloat) {
    return Inferred("DequantizeBlock", {{DType::kE4M3, q}, {dtype, scale}},
                    AttributesOf(b), 1)[0];
  };
  EXPECT_EQ(y({2, 3, 9}, {6, 3}, {1, 4}), "float[2,3,9]");
  EXPECT_EQ(y({2, 3, 9}, {6, 3}, {1, 4}, DType::kE8M0), "float[2,3,9]");
  EXPECT_EQ(y({-1, 9}, {6, 3}, {1, 4}), "float[?,9]");
  EXPECT_EQ(y({2, 9}, {}, {0, 0}), "float[2,9]");
  EXPECT_THROW(y({2, 9}, {}, {1, 0}), Error);
  EXPECT_THROW(y({2, 9}, {2, 2}, {1, 4}), Error);
  EXPECT_THROW(y({2, 9}, {2}, {1, 0}), Error);
  EXPECT_THROW(y({2, 9}, {2, 1}, {1, 0}, DType::kBFloat16), Error);
}

}  // namespace
}  // namespace onnx_fp8
