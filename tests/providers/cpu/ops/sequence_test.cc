// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

using V = std::vector<double>;
using Int64s = std::vector<int64_t>;

TEST(TopK, AgainstSortingOnEveryAxis) {
  // Few distinct values, so that ties are frequent.
  Tensor x = Tensor::Allocate(DType::kFloat, {5, 9, 4});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] =
        static_cast<float>(RandomBelow(1, static_cast<uint64_t>(i), 4));
  }
  for (int64_t axis : {0, 1, 2}) {
    for (int64_t largest : {0, 1}) {
      auto y = RunNode("TopK", {x, Tensor::Ints({3})},
                       {{"axis", axis}, {"largest", largest}}, 2);
      int64_t size = x.dim(axis), inner = Strides(x.shape())[axis];
      for (int64_t line = 0; line < x.size() / size; ++line) {
        int64_t o = line / inner, j = line % inner;
        std::vector<std::pair<double, int64_t>> all;
        for (int64_t i = 0; i < size; ++i) {
          double value = DoubleAt(x, (o * size + i) * inner + j);
          all.push_back({largest ? -value : value, i});
        }
        std::ranges::sort(all);
        for (int64_t t = 0; t < 3; ++t) {
          int64_t at = (o * 3 + t) * inner + j;
          auto [value, index] = all[static_cast<size_t>(t)];
          ASSERT_EQ(DoubleAt(y[0], at), largest ? -value : value);
          ASSERT_EQ(IntAt(y[1], at), index);
        }
      }
    }
  }
}

TEST(TopK, NaNIsLargestAndSmallFloatsCompareAsNumbers) {
  Tensor x = Floats({4}, {1, std::nanf(""), -2, 3});
  EXPECT_EQ(ToInts(RunNode("TopK", {x, Tensor::Ints({2})}, {}, 2)[1]),
            (Int64s{1, 3}));
  Tensor h = ConvertTo(Floats({3}, {-1, -2, 0.5f}), DType::kFloat16);
  EXPECT_EQ(ToInts(RunNode("TopK", {h, Tensor::Ints({3})}, {}, 2)[1]),
            (Int64s{2, 0, 1}));
}

TEST(TopK, RefusesBadOperands) {
  Tensor x = Count({3});
  for (int64_t k : {int64_t{4}, int64_t{-1}, INT64_MAX}) {
    EXPECT_NE(ErrorOf("TopK", {x, Tensor::Ints({k})}, {}, 2), "");
  }
  EXPECT_NE(ErrorOf("TopK", {x, Tensor::Ints({1, 1})}, {}, 2), "");
  EXPECT_NE(ErrorOf("TopK", {Floats({}, {1}), Tensor::Ints({1})}, {}, 2), "");
  EXPECT_EQ(RunNode("TopK", {x, Tensor::Ints({0})}, {}, 2)[0].shape(),
            Shape{0});
}

TEST(OneHot, IgnoresIndicesOutside) {
  Tensor values = Floats({2}, {-1, 1});
  EXPECT_EQ(Doubles(RunNode1("OneHot", {Tensor::Ints({1, -1, 2, -3}),
                                        Tensor::Scalar(int64_t{2}), values})),
            (V{-1, 1, -1, 1, -1, -1, -1, -1}));
  EXPECT_EQ(Doubles(RunNode1("OneHot",
                             {Tensor::Ints({0, 1}), Floats({1}, {2}), values},
                             {{"axis", int64_t{0}}})),
            (V{1, -1, -1, 1}));
  EXPECT_NE(ErrorOf("OneHot",
                    {Tensor::Ints({0}), Tensor::Scalar(int64_t{-1}), values}),
            "");
  EXPECT_NE(
      ErrorOf("OneHot", {Tensor::Ints({0}), Tensor::Ints({1, 1}), values}), "");
  EXPECT_NE(ErrorOf("OneHot", {Tensor::Ints({0}), Tensor::Ints({1}),
                               Floats({3}, {1, 2, 3})}),
            "");
}

TEST(Trilu, EveryDiagonal) {
  Tensor x = Tensor::Allocate(DType::kInt16, {2, 4, 3});
  for (int64_t i = 0; i < 24; ++i) {
    x.data<int16_t>()[i] = static_cast<int16_t>(i + 1);
  }
  for (int64_t k : {INT64_MIN, int64_t{-5}, int64_t{-1}, int64_t{0}, int64_t{2},
                    int64_t{7}, INT64_MAX}) {
    for (int64_t upper : {0, 1}) {
      Tensor y = RunNode1("Trilu", {x, Tensor::Scalar(k)}, {{"upper", upper}});
      for (int64_t i = 0; i < 24; ++i) {
        int64_t row = i / 3 % 4, column = i % 3;
        bool kept = upper ? column - row >= k : column - row <= k;
        ASSERT_EQ(IntAt(y, i), kept ? i + 1 : 0) << k << " " << upper;
      }
    }
  }
  EXPECT_NE(ErrorOf("Trilu", {Count({3})}), "");
  EXPECT_NE(ErrorOf("Trilu", {x, Tensor::Ints({1, 2})}), "");
}

TEST(NonZero, PositionsOfAnyDType) {
  EXPECT_EQ(ToInts(RunNode1("NonZero", {Floats({2, 2}, {0, -1, -0.0f, 2})})),
            (Int64s{0, 1, 1, 1}));
  Tensor half = ConvertTo(Floats({3}, {-0.0f, 0, 1e-7f}), DType::kFloat16);
  EXPECT_EQ(ToInts(RunNode1("NonZero", {half})), (Int64s{2}));
  EXPECT_EQ(RunNode1("NonZero", {Floats({}, {3})}).shape(), (Shape{0, 1}));
  EXPECT_EQ(RunNode1("NonZero", {Count({0, 2})}).shape(), (Shape{2, 0}));
}

TEST(Compress, FlattensWithoutAxis) {
  Tensor x = Count({2, 3});
  auto mask = [](const std::vector<uint8_t>& bits) {
    return ConvertTo(
        Tensor::From<uint8_t>({static_cast<int64_t>(bits.size())}, bits),
        DType::kBool);
  };
  EXPECT_EQ(Doubles(RunNode1("Compress", {x, mask({0, 1, 0, 1})})), (V{1, 3}));
  EXPECT_EQ(Doubles(RunNode1("Compress", {x, mask({0, 1, 1})},
                             {{"axis", int64_t{-1}}})),
            (V{1, 2, 4, 5}));
  EXPECT_NE(ErrorOf("Compress", {x, mask({1, 1, 1})}, {{"axis", int64_t{0}}}),
            "");
  EXPECT_NE(ErrorOf("Compress", {x, Tensor::Ints({1})}), "");
}

TEST(Unique, RowsInOrderOfFirstUseOrSorted) {
  Tensor x = Floats({4, 2}, {2, 0, 1, 5, 2, 0, 1, 4});
  Attributes rows = {{"axis", int64_t{0}}, {"sorted", int64_t{0}}};
  auto y = RunNode("Unique", {x}, rows, 4);
  EXPECT_EQ(Doubles(y[0]), (V{2, 0, 1, 5, 1, 4}));
  EXPECT_EQ(ToInts(y[1]), (Int64s{0, 1, 3}));
  EXPECT_EQ(ToInts(y[2]), (Int64s{0, 1, 0, 2}));
  EXPECT_EQ(ToInts(y[3]), (Int64s{2, 1, 1}));
  rows["sorted"] = int64_t{1};
  EXPECT_EQ(Doubles(RunNode("Unique", {x}, rows, 1)[0]), (V{1, 4, 1, 5, 2, 0}));
}

TEST(Unique, NaNsAreOneAndEmptyStaysEmpty) {
  float nan = std::nanf("");
  auto y = RunNode("Unique", {Floats({4}, {nan, 1, nan, 1})}, {}, 4);
  EXPECT_EQ(y[0].shape(), Shape{2});
  EXPECT_EQ(ToInts(y[3]), (Int64s{2, 2}));
  EXPECT_EQ(RunNode1("Unique", {Count({0})}).shape(), Shape{0});
  EXPECT_EQ(RunNode1("Unique", {Count({3, 0})}, {{"axis", int64_t{0}}}).shape(),
            (Shape{1, 0}));
}

}  // namespace
}  // namespace onnx_fp8
