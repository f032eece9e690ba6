// SPDX-License-Identifier: Apache-2.0
//
// Attention of rows that hold several documents, beside attention of each
// document alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/providers/cpu/isas.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kQueryHeads = 2, kKeyHeads = 1, kDepth = 4, kValueWidth = 3;

// q, k, v and dy, (B,T,width) each.
struct RowsOfTokens {
  Tensor q, k, v, dy;
};

RowsOfTokens RandomRows(int64_t batch, int64_t rows, DType dtype,
                        uint64_t seed) {
  const auto random = [&](int64_t width, uint64_t own) {
    Tensor x = RandomNormal({batch, rows, width}, 10 * seed + own);
    if (IsHalf(dtype)) return ConvertTo(ConvertTo(x, dtype), DType::kFloat);
    return ConvertTo(x, dtype);
  };
  return {random(kQueryHeads * kDepth, 1), random(kKeyHeads * kDepth, 2),
          random(kKeyHeads * kValueWidth, 3),
          random(kQueryHeads * kValueWidth, 4)};
}

// Rows `begin` … begin + n of one batch of x (B,T,width).
Tensor TokensOf(const Tensor& x, int64_t batch, int64_t begin, int64_t n) {
  Tensor part = Tensor::Allocate(x.dtype(), {1, n, x.dim(2)});
  const size_t row = part.bytes() / static_cast<size_t>(n);
  std::memcpy(part.raw(),
              static_cast<const uint8_t*>(x.raw()) +
                  static_cast<size_t>(batch * x.dim(1) + begin) * row,
              part.bytes());
  return part;
}

// The same of lse (B,H,T).
Tensor LseOf(const Tensor& x, int64_t batch, int64_t begin, int64_t n) {
  Tensor part = Tensor::Allocate(x.dtype(), {1, x.dim(1), n});
  const size_t width = part.bytes() / static_cast<size_t>(part.size());
  for (int64_t head = 0; head < x.dim(1); ++head) {
    const int64_t at = (batch * x.dim(1) + head) * x.dim(2) + begin;
    std::memcpy(
        static_cast<uint8_t*>(part.raw()) +
            static_cast<size_t>(head * n) * width,
        static_cast<const uint8_t*>(x.raw()) + static_cast<size_t>(at) * width,
        static_cast<size_t>(n) * width);
  }
  return part;
}

// y, lse, dq, dk and dv of the op, whose operands end with `more`.
std::vector<Tensor> RunBoth(const std::string& op, const RowsOfTokens& x,
                            const std::vector<Tensor>& more, bool causal,
                            DType round_to) {
  const Attributes attributes = {{"heads", kQueryHeads},
                                 {"kv_heads", kKeyHeads},
                                 {"scale", 0.4f},
                                 {"causal", int64_t{causal}},
                                 {"round_to", static_cast<int64_t>(round_to)}};
  std::vector<Tensor> in = {x.q, x.k, x.v};
  in.insert(in.end(), more.begin(), more.end());
  std::vector<Tensor> all = RunNode(op, in, attributes, 2, kDomain);
  in.insert(in.begin(), x.dy);
  in.insert(in.end(), all.begin(), all.end());
  for (Tensor& gradient : RunNode(op + "Grad", in, attributes, 3, kDomain)) {
    all.push_back(gradient);
  }
  return all;
}

// Part of result `i` of RunBoth.
Tensor PartOf(const std::vector<Tensor>& all, size_t i, int64_t batch,
              int64_t begin, int64_t n) {
  return i == 1 ? LseOf(all[i], batch, begin, n)
                : TokensOf(all[i], batch, begin, n);
}

Tensor Number(double value, DType dtype) {
  Tensor number = Floats({}, {static_cast<float>(value)});
  return ConvertTo(number, IsHalf(dtype) ? DType::kFloat : dtype);
}

// Ends of documents and of blocks of rows and columns do not meet; keys lie in
// several splits.
const std::vector<std::vector<int64_t>> kLengths = {{300, 1, 420, 37}, {758}};
constexpr int64_t kTokens = 758;

Tensor NumbersOf(const std::vector<std::vector<int64_t>>& lengths) {
  std::vector<int32_t> numbers;
  for (const std::vector<int64_t>& row : lengths) {
    for (size_t i = 0; i < row.size(); ++i) {
      numbers.insert(numbers.end(), static_cast<size_t>(row[i]),
                     static_cast<int32_t>(i) + 5);
    }
  }
  return Tensor::From<int32_t>({std::ssize(lengths), kTokens}, numbers);
}

// With a bias of 300, lse is so large that its rounding would show.
TEST(SegmentAttention, EqualsDocumentsAlone) {
  for (DType dtype : {DType::kDouble, DType::kFloat}) {
    const RowsOfTokens x = RandomRows(2, kTokens, dtype, 1);
    // As in attention_test.cc: sums of up to some hundred terms.
    const double bound = dtype == DType::kDouble ? 1e-12 : 4e-6;
    for (bool causal : {false, true}) {
      const Tensor bias = Number(causal ? 300 : 0, dtype);
      const auto got = RunBoth("AttentionSegments", x,
                               {bias, NumbersOf(kLengths)}, causal, dtype);
      for (size_t batch = 0; batch < kLengths.size(); ++batch) {
        int64_t begin = 0;
        const auto b = static_cast<int64_t>(batch);
        for (int64_t n : kLengths[batch]) {
          const RowsOfTokens own = {
              TokensOf(x.q, b, begin, n), TokensOf(x.k, b, begin, n),
              TokensOf(x.v, b, begin, n), TokensOf(x.dy, b, begin, n)};
          const auto alone =
              RunBoth("AttentionBias", own, {bias}, causal, dtype);
          for (size_t i = 0; i < alone.size(); ++i) {
            double largest = 1;
            for (double number : Doubles(alone[i])) {
              largest = std::max(largest, std::fabs(number));
            }
            EXPECT_LE(LargestDifference(PartOf(got, i, b, begin, n), alone[i]),
                      bound * largest)
                << i << " of " << n << " tokens from " << begin << ", "
                << Name(dtype) << ", causal " << causal;
          }
          begin += n;
        }
      }
    }
  }
}

// Other numbers in one document change no bit of the others.
TEST(SegmentAttention, LeaksNothing) {
  const Tensor numbers = NumbersOf(kLengths);
  for (DType dtype : {DType::kDouble, DType::kFloat, DType::kBFloat16}) {
    const RowsOfTokens x = RandomRows(2, kTokens, dtype, 1);
    const RowsOfTokens other = RandomRows(2, kTokens, dtype, 2);
    RowsOfTokens changed = RandomRows(2, kTokens, dtype, 1);
    const auto change = [](const Tensor& from, Tensor& to) {
      const size_t row = to.bytes() / (2 * kTokens);
      std::memcpy(static_cast<uint8_t*>(to.raw()) + 301 * row,
                  static_cast<const uint8_t*>(from.raw()) + 301 * row,
                  420 * row);
    };
    change(other.q, changed.q);
    change(other.k, changed.k);
    change(other.v, changed.v);
    change(other.dy, changed.dy);
    for (Isa isa : RunnableIsas()) {
      WithIsa with(isa);
      SCOPED_TRACE(std::string(Name(isa)) + ", " + Name(dtype));
      for (bool causal : {false, true}) {
        const std::vector<Tensor> more = {Number(0, dtype), numbers};
        const auto a = RunBoth("AttentionSegments", x, more, causal, dtype);
        const auto b =
            RunBoth("AttentionSegments", changed, more, causal, dtype);
        for (size_t i = 0; i < a.size(); ++i) {
          const auto same = [&](int64_t batch, int64_t begin, int64_t n) {
            return Identical(PartOf(a, i, batch, begin, n),
                             PartOf(b, i, batch, begin, n));
          };
          EXPECT_TRUE(same(0, 0, 301)) << i;
          EXPECT_FALSE(same(0, 301, 420)) << i;
          EXPECT_TRUE(same(0, 721, 37)) << i;
          EXPECT_TRUE(same(1, 0, kTokens)) << i;
        }
      }
    }
  }
}

// Segments need not lie side by side.
TEST(SegmentAttention, EqualsAMaskOfMixedNumbers) {
  constexpr int64_t kRows = 70;
  const RowsOfTokens x = RandomRows(2, kRows, DType::kDouble, 3);
  std::vector<int32_t> numbers;
  std::vector<float> hidden;
  for (int32_t i = 0; i < 2 * kRows; ++i) numbers.push_back(7 * i % 5 - 2);
  for (int64_t at = 0; at < 2 * kRows * kRows; ++at) {
    const int64_t row = at / kRows, batch = row / kRows, column = at % kRows;
    const bool same = numbers[static_cast<size_t>(row)] ==
                      numbers[static_cast<size_t>(batch * kRows + column)];
    hidden.push_back(same ? 0 : -std::numeric_limits<float>::infinity());
  }
  const Tensor mask =
      ConvertTo(Floats({2, 1, kRows, kRows}, hidden), DType::kDouble);
  for (bool causal : {false, true}) {
    const auto expected =
        RunBoth("AttentionBias", x, {mask}, causal, DType::kDouble);
    const auto got = RunBoth(
        "AttentionSegments", x,
        {Number(0, DType::kDouble), Tensor::From<int32_t>({2, kRows}, numbers)},
        causal, DType::kDouble);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(LargestDifference(got[i], expected[i]), 1e-12) << i;
    }
  }
}

// A product with a probability of 0 would be NaN.
TEST(SegmentAttention, BlocksOfOtherDocumentsAreNotRead) {
  constexpr int64_t kRows = 1024, kBorder = 512, kBlock = 192;
  RowsOfTokens x = RandomRows(1, kRows, DType::kFloat, 4);
  for (Tensor* part : {&x.v, &x.dy}) {
    std::fill_n(part->data<float>(), 256 * part->dim(2),
                std::numeric_limits<float>::quiet_NaN());
  }
  std::vector<int32_t> numbers(kRows, 1);
  std::fill_n(numbers.begin(), kBorder, 0);
  const auto all = RunBoth(
      "AttentionSegments", x,
      {Number(0, DType::kFloat), Tensor::From<int32_t>({1, kRows}, numbers)},
      false, DType::kFloat);
  for (size_t i : {0, 4}) {
    const auto is_nan = [](double number) { return std::isnan(number); };
    const int64_t first = kBorder + kBlock;
    EXPECT_TRUE(
        std::ranges::any_of(Doubles(TokensOf(all[i], 0, 0, kBorder)), is_nan));
    EXPECT_TRUE(std::ranges::none_of(
        Doubles(TokensOf(all[i], 0, first, kRows - first)), is_nan))
        << i;
  }
}

// q, k and v in one operand give the bits of operands of their own.
TEST(SegmentAttention, OfOneOperand) {
  const Tensor q = RandomNormal({2, 40, 8}, 1), k = RandomNormal({2, 40, 4}, 2),
               v = RandomNormal({2, 40, 4}, 3);
  std::vector<int32_t> numbers(80);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int32_t>(i) / 13;
  }
  const Tensor bias = Number(0, DType::kFloat),
               segments = Tensor::From<int32_t>({2, 40}, numbers);
  Attributes attributes = {{"heads", int64_t{2}},
                           {"kv_heads", int64_t{1}},
                           {"scale", 0.4f},
                           {"causal", int64_t{1}},
                           {"round_to", int64_t{1}}};
  const auto join = [](const std::vector<Tensor>& parts) {
    return RunNode1("Concat", parts, {{"axis", int64_t{2}}});
  };
  const auto y = RunNode("AttentionSegments", {q, k, v, bias, segments},
                         attributes, 2, kDomain);
  const auto d = RunNode("AttentionSegmentsGrad",
                         {y[0], q, k, v, bias, segments, y[0], y[1]},
                         attributes, 3, kDomain);
  const std::vector<int64_t> perm = {1, 0, 2};
  const auto turned = [&](const Tensor& x) {
    return RunNode1("Transpose", {x}, {{"perm", perm}});
  };
  attributes["perm"] = perm;
  const Tensor qkv = turned(join({q, k, v}));
  const auto packed = RunNode("AttentionPackedSegments", {qkv, bias, segments},
                              attributes, 2, kDomain);
  EXPECT_TRUE(Identical(packed[0], turned(y[0])));
  EXPECT_TRUE(Identical(packed[1], y[1]));
  const Tensor gradient =
      RunNode1("AttentionPackedSegmentsGrad",
               {packed[0], qkv, bias, segments, packed[0], packed[1]},
               attributes, kDomain);
  EXPECT_TRUE(Identical(gradient, turned(join({d[0], d[1], d[2]}))));
}

TEST(SegmentAttention, RefusesOperandsThatDoNotFit) {
  const Tensor q = Count({1, 4, 8}), k = Count({1, 4, 4}), v = Count({1, 4, 3});
  const Attributes attributes = {{"heads", kQueryHeads},
                                 {"kv_heads", kKeyHeads},
                                 {"scale", 0.4f},
                                 {"causal", int64_t{0}},
                                 {"round_to", int64_t{1}}};
  const auto error = [&](const Tensor& keys, const Tensor& values,
                         const Tensor& segments) {
    return ErrorOf("AttentionSegments",
                   {q, keys, values, Number(0, DType::kFloat), segments},
                   attributes, 2, kDomain);
  };
  EXPECT_EQ(error(k, v, Tensor::Zeros(DType::kInt32, {1, 4})), "");
  EXPECT_NE(error(k, v, Tensor::Zeros(DType::kInt32, {4})).find("[4]"),
            std::string::npos);
  EXPECT_NE(error(k, v, Tensor::Zeros(DType::kInt64, {1, 4})).find("int64"),
            std::string::npos);
  EXPECT_NE(error(Count({1, 5, 4}), Count({1, 5, 3}),
                  Tensor::Zeros(DType::kInt32, {1, 4}))
                .find("as many columns as rows for segments, got 5 and 4"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
