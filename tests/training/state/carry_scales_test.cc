// SPDX-License-Identifier: Apache-2.0
#include "training/state/carry_scales.h"

#include <gtest/gtest.h>

namespace onnx_fp8 {
namespace {

ScaleSlot MakeSlot(const char* fqn, Scaling scaling = Scaling::kDelayed) {
  ScaleSlot slot{fqn, "forward", "input", DType::kE4M3};
  slot.scaling = scaling;
  return slot;
}

// Row 0 of a history is empty between two steps.
ScaleState State(std::vector<ScaleSlot> slots, std::vector<float> scale,
                 std::vector<float> history) {
  auto n = static_cast<int64_t>(slots.size());
  auto rows = static_cast<int64_t>(history.size()) / n;
  return {std::move(slots), Tensor::From<float>({n}, scale),
          Tensor::From<float>({rows, n}, history)};
}

std::vector<float> ToFloats(const Tensor& t) {
  return {t.data<float>(), t.data<float>() + t.size()};
}

using Values = std::vector<float>;

TEST(CarryScales, TheSameLayoutGoesOnAsItIs) {
  ScaleState from =
      State({MakeSlot("a"), MakeSlot("b")}, {1, 2}, {0, 0, 3, 4, 5, 6});
  ScaleState to =
      State({MakeSlot("a"), MakeSlot("b")}, {0, 0}, {0, 0, 0, 0, 0, 0});
  EXPECT_EQ(CarryScales(from, &to), "");
  EXPECT_EQ(ToFloats(to.scale), ToFloats(from.scale));
  EXPECT_EQ(ToFloats(to.history), ToFloats(from.history));
}

TEST(CarryScales, SlotsGoByKeyNotByPosition) {
  ScaleState from = State({MakeSlot("a"), MakeSlot("b"), MakeSlot("c")},
                          {1, 2, 3}, {0, 0, 0, 4, 5, 6});
  ScaleState to = State({MakeSlot("c"), MakeSlot("d"), MakeSlot("a")},
                        {0, 0, 0}, {0, 0, 0, 0, 0, 0});
  EXPECT_EQ(CarryScales(from, &to),
            "delayed scales: 2 go on, 1 start anew, 1 are dropped");
  EXPECT_EQ(ToFloats(to.scale), (Values{3, 0, 1}));
  EXPECT_EQ(ToFloats(to.history), (Values{0, 0, 0, 6, 0, 4}));
}

TEST(CarryScales, AShorterHistoryKeepsTheNewest) {
  ScaleState from = State({MakeSlot("a")}, {1}, {0, 2, 3, 4});
  ScaleState to = State({MakeSlot("a")}, {0}, {0, 0});
  EXPECT_EQ(CarryScales(from, &to),
            "delayed scales: 1 go on, 0 start anew, 0 are dropped; their "
            "history is 2 steps, was 4");
  EXPECT_EQ(ToFloats(to.history), (Values{0, 4}));
  ScaleState longer = State({MakeSlot("a")}, {0}, {0, 0, 0, 0, 0, 0});
  CarryScales(from, &longer);
  EXPECT_EQ(ToFloats(longer.history), (Values{0, 0, 0, 2, 3, 4}));
}

TEST(CarryScales, StaticScalesAreNotTouched) {
  ScaleState from = State({MakeSlot("a"), MakeSlot("b")}, {1, 2}, {0, 0, 3, 4});
  ScaleState to = State({MakeSlot("a", Scaling::kStatic), MakeSlot("b")},
                        {9, 0}, {0, 0, 0, 0});
  EXPECT_EQ(CarryScales(from, &to),
            "delayed scales: 1 go on, 0 start anew, 1 are dropped");
  EXPECT_EQ(ToFloats(to.scale), (Values{9, 2}));
}

TEST(CarryScales, ARecipeWithoutScalesDropsThem) {
  ScaleState from = State({MakeSlot("a")}, {1}, {0, 2}), to;
  EXPECT_EQ(CarryScales(from, &to),
            "delayed scales: 0 go on, 0 start anew, 1 are dropped");
  EXPECT_EQ(CarryScales({}, &to), "");
}

}  // namespace
}  // namespace onnx_fp8
