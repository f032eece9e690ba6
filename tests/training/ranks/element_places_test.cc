// SPDX-License-Identifier: Apache-2.0
//
// The places that parts say their elements have, beside the parts themselves.
#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

#include "base/check.h"
#include "providers/cpu/math/round_stochastic.h"
#include "tests/training/small_model.h"
#include "training/ranks/axis_split.h"
#include "training/ranks/sharded_state.h"

namespace onnx_fp8 {
namespace {

struct PartCase {
  Shape whole;
  std::optional<AxisSplit> split;
  int64_t tp = 1, dp = 1;

  std::string Text() const {
    return Concat(ToString(whole), ", axis ", split ? split->axis : -1, ", ",
                  split ? split->blocks : 0, " blocks, tp ", tp, ", dp ", dp);
  }
};

// All splits that a shape allows, and rows that the ranks do not divide.
std::vector<PartCase> PartCases() {
  std::vector<PartCase> cases;
  for (const Shape& whole : {Shape{7}, Shape{1}, Shape{5, 3}, Shape{12, 5},
                             Shape{4, 6, 3}, Shape{6, 12, 4}}) {
    for (int64_t dp : {1, 2, 3, 4}) cases.push_back({whole, {}, 1, dp});
    for (size_t axis = 0; axis < whole.size(); ++axis) {
      for (int64_t blocks : {1, 2, 3}) {
        for (int64_t tp : {2, 3, 4}) {
          if (blocks > 1 && whole[axis] % (blocks * tp) != 0) continue;
          const AxisSplit split = {static_cast<int64_t>(axis), blocks};
          for (int64_t dp : {1, 2, 3}) cases.push_back({whole, split, tp, dp});
        }
      }
    }
  }
  return cases;
}

// As a rank keeps it, the parts of tp by rows.
Shard ShardOfRank(const PartCase& c, int64_t tensor_rank, int64_t data_rank) {
  const Shape part = c.split ? PartOf(c.whole, *c.split, c.tp) : c.whole;
  Shard shard = ShardOf(part, data_rank, c.dp);
  shard.whole = c.whole;
  if (c.split) shard.tensor_part = {*c.split, tensor_rank, c.tp};
  return shard;
}

template <typename Fn>
void ForRanks(const PartCase& c, Fn fn) {
  for (int64_t t = 0; t < c.tp; ++t) {
    for (int64_t d = 0; d < c.dp; ++d) fn(ShardOfRank(c, t, d));
  }
}

// Each element of the whole says its number, from 1; parts end with zeros.
TEST(PlacesOfParts, AreTheNumbersOfTheirElements) {
  for (const PartCase& c : PartCases()) {
    Tensor whole = Tensor::Allocate(DType::kInt64, c.whole);
    for (int64_t i = 0; i < whole.size(); ++i) {
      whole.data<int64_t>()[i] = i + 1;
    }
    std::set<int64_t> seen;
    ForRanks(c, [&](const Shard& shard) {
      const Tensor part = PartOf(whole, shard);
      const ElementPlaces places = PlacesOf(shard);
      for (int64_t i = 0; i < part.size(); ++i) {
        const int64_t number = part.data<int64_t>()[i];
        if (number == 0) continue;
        ASSERT_EQ(places.Of(i), number - 1) << c.Text() << ", element " << i;
        ASSERT_TRUE(seen.insert(number).second) << c.Text();
      }
    });
    EXPECT_EQ(static_cast<int64_t>(seen.size()), whole.size()) << c.Text();
  }
}

Tensor RoundedAt(const Tensor& x, const ElementPlaces& places) {
  Tensor y = Tensor::Allocate(DType::kBFloat16, x.shape());
  RoundStochastic(x.data<float>(), static_cast<uint16_t*>(y.raw()), 0, x.size(),
                  places, DrawKey(3, 5, 7));
  return y;
}

TEST(PlacesOfParts, PartsAreRoundedAsTheWhole) {
  for (const PartCase& c : PartCases()) {
    const Tensor whole = Random(c.whole, 1);
    const Tensor rounded = RoundedAt(whole, {});
    ForRanks(c, [&](const Shard& shard) {
      EXPECT_TRUE(Identical(RoundedAt(PartOf(whole, shard), PlacesOf(shard)),
                            PartOf(rounded, shard)))
          << c.Text();
    });
  }
}

TEST(PlacesOfParts, WholeTensorsAndTensorsWithoutElements) {
  EXPECT_EQ(PlacesOf({.whole = {}, .part = {}}), ElementPlaces{});
  EXPECT_EQ(PlacesOf({.whole = {3, 4}, .rows = 3, .part = {3, 4}}),
            ElementPlaces{});
  Shard empty{.whole = {0, 4}, .part = {0, 2}};
  empty.tensor_part = {{.axis = 1}, 1, 2};
  EXPECT_EQ(PlacesOf(empty), ElementPlaces{});
}

}  // namespace
}  // namespace onnx_fp8
