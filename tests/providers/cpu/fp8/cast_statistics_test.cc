// SPDX-License-Identifier: Apache-2.0
//
// CastStatistics: the kernel and the body beside a loop over the elements.
#include "onnx_fp8/cast_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "onnx_fp8/float8.h"
#include "providers/kernel.h"
#include "tests/providers/cpu/body_runner.h"
#include "tests/providers/cpu/fp8/quantization.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

// Half a step beyond the largest code.
float Limit(DType format) { return format == DType::kE4M3 ? 464.f : 61440.f; }

// Adds the ratios of lines: rows of `row` elements. `errors`, `squares`: of
// each element.
void AddLines(const std::vector<double>& errors,
              const std::vector<double>& squares, int64_t row,
              CastStatistics* all) {
  const auto n = static_cast<size_t>(row);
  for (size_t begin = 0; n > 0 && begin < squares.size(); begin += n) {
    double signal = 0, noise = 0;
    for (size_t i = begin; i < begin + n; ++i) {
      signal += squares[i];
      noise += errors[i];
    }
    all->lines += signal > 0;
    if (signal > 0) all->line_noise += noise > signal ? 1 : noise / signal;
  }
}

// The columns one behind the other.
std::vector<double> Columns(const std::vector<double>& rows, int64_t n) {
  std::vector<double> columns;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < std::ssize(rows); i += n) {
      columns.push_back(rows[static_cast<size_t>(i)]);
    }
  }
  return columns;
}

// `scale` has one element, or one for each row of x.
CastStatistics StatisticsByLoop(const Tensor& x, const Tensor& q,
                                const Tensor& scale, DType format) {
  CastStatistics all;
  for (int64_t i = 0; i < scale.size(); ++i) {
    all.scale = std::max(all.scale, DoubleAt(scale, i));
  }
  const Tensor codes = ConvertTo(q, DType::kFloat);
  const auto size = static_cast<size_t>(x.size());
  std::vector<double> errors(size), squares(size);
  const int64_t row = x.rank() > 0 && x.size() > 0 ? x.shape().back() : 1;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double v = DoubleAt(x, i);
    const double code = DoubleAt(codes, i);
    const double s = DoubleAt(scale, scale.size() == 1 ? 0 : i / row);
    all.elements += 1;
    if (!std::isfinite(v)) {
      all.not_finite += 1;
      continue;
    }
    const double error = v - static_cast<float>(code * s);
    const auto at = static_cast<size_t>(i);
    all.signal += squares[at] = v * v;
    all.noise += errors[at] = error * error;
    all.zeros += v == 0;
    all.flushed += v != 0 && code == 0;
    all.saturated += std::fabs(v) > Limit(format) * s;
    all.amax = std::max(all.amax, std::fabs(v));
    if (v != 0) all.least = std::min(all.least, std::fabs(v));
  }
  AddLines(errors, squares, row, &all);
  return all;
}

void ExpectNumbers(const Tensor& y, const CastStatistics& expected) {
  ASSERT_EQ(y.dtype(), DType::kDouble);
  const std::vector<double> numbers = Doubles(y);
  const double counts[] = {expected.elements, expected.zeros, expected.flushed,
                           expected.saturated, expected.not_finite};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(numbers[i], counts[i]) << i;
  EXPECT_NEAR(numbers[5], expected.signal, 1e-12 * expected.signal);
  EXPECT_NEAR(numbers[6], expected.noise, 1e-12 * expected.noise);
  EXPECT_EQ(numbers[7], expected.lines);
  EXPECT_NEAR(numbers[8], expected.line_noise, 1e-12 * expected.line_noise);
  EXPECT_EQ(numbers[9], expected.amax);
  EXPECT_EQ(numbers[10], expected.least);
  EXPECT_EQ(numbers[11], expected.scale);
}

void ExpectStatistics(const Tensor& x, const Tensor& q, const Tensor& scale,
                      DType format, Blocks blocks) {
  const Attributes attributes = {{"q_max", Float8Max(format)},
                                 {"limit", Limit(format)},
                                 {"block_rows", blocks.rows},
                                 {"block_columns", blocks.columns}};
  const CastStatistics expected = StatisticsByLoop(x, q, scale, format);
  const std::vector<Tensor> operands = {x, q, scale};
  {
    SCOPED_TRACE("kernel");
    ExpectNumbers(
        RunNode("CastStatistics", operands, attributes, 1, kDomain)[0],
        expected);
  }
  SCOPED_TRACE("body");
  ExpectNumbers(RunBody("CastStatistics", operands, attributes, 1)[0],
                expected);
}

std::vector<Tensor> Operands() {
  std::vector<Tensor> all = {
      RandomNormal({3, 5, 7}, 1), RandomNormal({1, 1}, 1),
      RandomNormal({90, 400}, 2), Tensor::Zeros(DType::kFloat, {2, 3}),
      Tensor::Zeros(DType::kFloat, {0, 2})};
  for (float special :
       {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 1e-40f, 3e38f, 1e-13f}) {
    Tensor t = RandomNormal({4, 9}, 3);
    t.data<float>()[7] = special;
    all.push_back(t);
  }
  return all;
}

TEST(CastStatistics, OfScalesThatAreMeasuredOrGiven) {
  for (const Tensor& x : Operands()) {
    for (DType format : {DType::kE4M3, DType::kE5M2}) {
      SCOPED_TRACE(ToString(x.shape()) + Name(format));
      auto made =
          RunNode("QuantizeTensor", {x}, QuantizeTo(format), 3, kDomain);
      ExpectStatistics(x, made[0], made[1], format, {0, 0});
      for (float scale : {1e-3f, 0.01f, 3.0f, 1e6f}) {
        made = RunNode("QuantizeWith", {x, Tensor::Scalar(scale)},
                       QuantizeTo(format), 3, kDomain);
        ExpectStatistics(x, made[0], made[1], format, {0, 0});
      }
    }
  }
}

TEST(CastStatistics, OfScalesOfRows) {
  for (const Tensor& x : Operands()) {
    SCOPED_TRACE(ToString(x.shape()));
    Attributes attributes = QuantizeTo(DType::kE4M3);
    attributes["block_rows"] = int64_t{1};
    attributes["block_columns"] = int64_t{0};
    attributes["pow2"] = int64_t{2};  // numbers above q_max saturate
    attributes["scale_to"] = static_cast<int64_t>(DType::kFloat);
    const auto made = RunNode("QuantizeBlock", {x}, attributes, 3, kDomain);
    ExpectStatistics(x, made[0], made[1], DType::kE4M3, {1, 0});
  }
}

// e4m3 ends with 416, 448; the step beyond would be 480.
TEST(CastStatistics, NumbersThatRoundToTheLargestCodeAreNotSaturated) {
  const Tensor x = Floats({1, 5}, {448, 463, 464, 465, 0.0009f});
  const auto made = RunNode("QuantizeWith", {x, Tensor::Scalar(1.0f)},
                            QuantizeTo(DType::kE4M3), 3, kDomain);
  const CastStatistics s = StatisticsByLoop(x, made[0], made[1], DType::kE4M3);
  EXPECT_EQ(s.saturated, 1);
  EXPECT_EQ(s.flushed, 1);
  ExpectStatistics(x, made[0], made[1], DType::kE4M3, {0, 0});
}

// The op has no scale, and counts no number as saturated.
TEST(ProductStatistics, AreThoseOfALoop) {
  for (const Tensor& x : Operands()) {
    SCOPED_TRACE(ToString(x.shape()));
    for (float special : {0.0f, 1.0f, 3e38f, kInfinity, kNaN}) {
      Tensor y = x.Clone();
      for (int64_t i = 0; i < y.size(); ++i) y.data<float>()[i] *= 1.01f;
      if (y.size() > 8) y.data<float>()[8] = special;
      CastStatistics expected;
      const auto size = static_cast<size_t>(x.size());
      std::vector<double> errors(size), squares(size);
      for (int64_t i = 0; i < x.size(); ++i) {
        const double v = DoubleAt(x, i), other = DoubleAt(y, i);
        expected.elements += 1;
        if (!std::isfinite(v) || !std::isfinite(other)) {
          expected.not_finite += 1;
          continue;
        }
        const auto at = static_cast<size_t>(i);
        expected.signal += squares[at] = v * v;
        expected.noise += errors[at] = (v - other) * (v - other);
        expected.zeros += v == 0;
        expected.flushed += v != 0 && other == 0;
        expected.amax = std::max(expected.amax, std::fabs(v));
        if (v != 0) expected.least = std::min(expected.least, std::fabs(v));
      }
      AddLines(errors, squares, x.shape().back(), &expected);
      AddLines(Columns(errors, x.shape().back()),
               Columns(squares, x.shape().back()),
               std::ssize(errors) / x.shape().back(), &expected);
      ExpectNumbers(RunNode("ProductStatistics", {x, y}, {}, 1, kDomain)[0],
                    expected);
      ExpectNumbers(RunBody("ProductStatistics", {x, y}, {}, 1)[0], expected);
    }
  }
}

TEST(CastStatistics, RefusesCodesOfAnotherShape) {
  const Tensor q = ConvertTo(RandomNormal({4, 2}, 1), DType::kE4M3);
  EXPECT_NE(ErrorOf("CastStatistics",
                    {RandomNormal({2, 4}, 1), q, Tensor::Scalar(1.0f)},
                    {{"q_max", 448.0f},
                     {"limit", 464.0f},
                     {"block_rows", int64_t{0}},
                     {"block_columns", int64_t{0}}},
                    1, kDomain)
                .find("expected floats and as many codes, got float[2,4] and "),
            std::string::npos);
}

TEST(CastStatistics, PartsMakeAWhole) {
  CastStatistics a{.elements = 10, .zeros = 1, .signal = 8, .noise = 1};
  a.amax = 3;
  a.least = 0.5;
  CastStatistics b{.elements = 30, .saturated = 2, .signal = 2, .noise = 0};
  b.amax = 2;
  b.least = 0.25;
  a.Add(b);
  EXPECT_EQ(a.Share(a.saturated), 0.05);
  EXPECT_DOUBLE_EQ(a.Sqnr(), 10);
  EXPECT_DOUBLE_EQ(a.RangeBits(), std::log2(12));
  a.lines = 3, a.line_noise = 0.5;
  b.lines = 2, b.line_noise = 0;
  b.Add(a);
  EXPECT_DOUBLE_EQ(b.LineSqnr(), 10);
  EXPECT_EQ(CastStatistics{}.LineSqnr(), kInfinity);
  EXPECT_EQ(CastStatistics{}.Share(0), 0);
  EXPECT_EQ(CastStatistics{}.RangeBits(), 0);
  EXPECT_EQ(CastStatistics{}.Sqnr(), kInfinity);
}

}  // namespace
}  // namespace onnx_fp8
