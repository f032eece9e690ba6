// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/free_early.h"

#include <gtest/gtest.h>

namespace onnx_fp8 {
namespace {

using Order = std::vector<int>;

// 0 makes the activation; 1 quantizes it, 2 reads the copy; 3 … are the
// backward.
TEST(FreeEarly, MovesWhatAloneKeepsAValue) {
  std::vector<Occupant> values = {
      {0, 64, {1, 4}}, {1, 16, {2}}, {4, 16, {5}}, {3, 64, {5}}};
  std::vector<size_t> results = {64, 16, 64, 64, 16, 64};
  EXPECT_EQ(OrderThatFreesEarly(values, results), (Order{0, 1, 4, 2, 3, 5}));
  // 3 reads it too and has to stay; 4 comes after that anyway.
  values[0].readers = {1, 3, 4};
  EXPECT_EQ(OrderThatFreesEarly(values, results), (Order{0, 1, 2, 3, 4, 5}));
  values[0].readers = {1, 2, 4};
  EXPECT_EQ(OrderThatFreesEarly(values, results), (Order{0, 1, 2, 4, 3, 5}));
}

TEST(FreeEarly, MovesNothingThatGainsNothing) {
  Order same = {0, 1, 2, 3};
  std::vector<Occupant> values = {{0, 64, {3}}};
  EXPECT_EQ(OrderThatFreesEarly(values, {64, 8, 8, 8}), (Order{0, 3, 1, 2}));
  EXPECT_EQ(OrderThatFreesEarly(values, {64, 8, 8, 64}), same);
  EXPECT_EQ(OrderThatFreesEarly(values, {64, 8, 8, kElsewhere}), same);
  values[0].readers = {2, 3};  // together their results are as large
  EXPECT_EQ(OrderThatFreesEarly(values, {64, 8, 32, 32}), same);
  EXPECT_EQ(OrderThatFreesEarly(values, {64, 8, 32, 31}), (Order{0, 2, 3, 1}));
}

TEST(FreeEarly, WaitsForAllThatIsRead) {
  std::vector<Occupant> values = {{0, 64, {4}}, {2, 4, {4}}};
  EXPECT_EQ(OrderThatFreesEarly(values, {64, 8, 4, 8, 8}),
            (Order{0, 1, 2, 4, 3}));
  // The later of two readers has to wait, so moving the earlier one frees
  // nothing.
  values = {{0, 64, {3, 4}}, {2, 4, {4}}};
  EXPECT_EQ(OrderThatFreesEarly(values, {64, 8, 4, 8, 8}),
            (Order{0, 1, 2, 3, 4}));
}

TEST(FreeEarly, GoesToTheEarliestPlace) {
  // 5 could free either value.
  std::vector<Occupant> values = {{0, 64, {5}}, {2, 64, {3, 5}}};
  EXPECT_EQ(OrderThatFreesEarly(values, {64, 8, 64, 8, 8, 8}),
            (Order{0, 1, 2, 3, 5, 4}));
}

}  // namespace
}  // namespace onnx_fp8
