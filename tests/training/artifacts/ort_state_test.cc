// SPDX-License-Identifier: Apache-2.0
//
// test_ort_checkpoints.py compares losses with onnxruntime-training.
#include "training/artifacts/ort_state.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

Tensor Filled(const Shape& shape, float value) {
  Tensor tensor = Tensor::Zeros(DType::kFloat, shape);
  std::fill_n(tensor.data<float>(), tensor.size(), value);
  return tensor;
}

OrtCheckpoint AfterSteps(int64_t steps) {
  OrtCheckpoint c;
  c.trained = {{"w", Filled({2, 3}, 1)}, {"b", Filled({3}, 2)}};
  c.frozen = {{"f", Filled({4}, 3)}};
  OrtOptimizerGroup group{"group0", steps, 0.25f, {}};
  // In another order than the parameters.
  group.parameters = {
      {"b", {{"momentum0", Filled({3}, 10)}, {"momentum1", Filled({3}, 11)}}},
      {"w",
       {{"momentum0", Filled({2, 3}, 12)}, {"momentum1", Filled({2, 3}, 13)}}}};
  c.groups = {group};
  return c;
}

std::string ErrorFor(const OrtCheckpoint& checkpoint) {
  try {
    OptimizerState(checkpoint, "adamw_hf", "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

float First(const TensorMap& state, const std::string& name) {
  return state.at(name).data<float>()[0];
}

TEST(OrtState, IsReadByOurNames) {
  TensorMap state = OptimizerState(AfterSteps(7), "adamw_hf", "file");
  EXPECT_EQ(state.size(), 5u);
  EXPECT_EQ(state.at("optimizer.step").data<int64_t>()[0], 7);
  EXPECT_EQ(First(state, "b.exp_avg"), 10);
  EXPECT_EQ(First(state, "b.exp_avg_sq"), 11);
  EXPECT_EQ(First(state, "w.exp_avg"), 12);
  EXPECT_EQ(First(state, "w.exp_avg_sq"), 13);
}

TEST(OrtState, ATensorWithTheNameOfAMoment) {
  OrtCheckpoint c = AfterSteps(7);
  c.frozen.push_back({"w.exp_avg", Filled({2, 3}, 5)});
  EXPECT_EQ(ErrorFor(c),
            "[file] expected no tensor with the name of a moment, got "
            "w.exp_avg: rename it in the model");
  const TensorMap state = {{"w", Filled({2, 3}, 1)},
                           {"b", Filled({3}, 2)},
                           {"w.exp_avg", Filled({2, 3}, 5)},
                           {"optimizer.step", Tensor::Scalar(int64_t{7})}};
  EXPECT_THROW(TakeState(state, {.kind = "adamw"}, "file", &c), Error);
}

TEST(OrtState, OfAnotherOptimizerIsNotTaken) {
  EXPECT_EQ(OptimizerState(AfterSteps(7), "sgd", "file").size(), 1u);
  OrtCheckpoint sgd = AfterSteps(7);
  for (OrtMoments& of : sgd.groups[0].parameters) of.moments.pop_back();
  EXPECT_TRUE(OptimizerState(sgd, "adamw", "file").empty());
  sgd.groups.clear();
  EXPECT_TRUE(OptimizerState(sgd, "sgd", "file").empty());
}

TEST(OrtState, ThatIsDamagedIsNamed) {
  OrtCheckpoint c = AfterSteps(-1);
  EXPECT_EQ(ErrorFor(c), "[file] expected a number of updates, got -1");
  c = AfterSteps(7);
  c.groups.push_back(c.groups[0]);
  EXPECT_EQ(ErrorFor(c),
            "[file] expected the parameters of the optimizer in one group, got "
            "2");
  c = AfterSteps(7);
  c.groups[0].parameters[0].moments[1].second = Filled({2}, 0);
  EXPECT_EQ(ErrorFor(c),
            "[file] expected momentum1 of b as float[3], got float[2]");
  c.groups[0].parameters[0].moments.pop_back();
  EXPECT_EQ(ErrorFor(c),
            "[file] expected momentum1 of b as float[3], got none");
  c.groups[0].parameters.erase(c.groups[0].parameters.begin());
  EXPECT_EQ(ErrorFor(c),
            "[file] expected momentum0 of b as float[3], got none");
}

TEST(OrtState, ComesBackAsItWas) {
  OrtCheckpoint before = AfterSteps(7), after = AfterSteps(1);
  after.trained[1].second = Filled({3}, 0);
  TensorMap state = OptimizerState(before, "adamw", "file");
  for (const auto& [name, tensor] : before.trained) state[name] = tensor;
  state["f"] = Filled({4}, 5);
  TakeState(state, {.kind = "adamw", .lr = 0.5}, "file", &after);
  EXPECT_EQ(after.trained[1].second.data<float>()[0], 2);
  EXPECT_EQ(after.frozen[0].second.data<float>()[0], 5);
  EXPECT_EQ(after.groups[0].step, 7);
  EXPECT_EQ(after.groups[0].initial_lr, 0.5f);
  TensorMap again = OptimizerState(after, "adamw", "file");
  for (const auto& [name, tensor] : again) {
    EXPECT_TRUE(Identical(tensor, state.at(name))) << name;
  }
}

// Theirs has floats of 32 bits.
TEST(OrtState, MomentsIn16BitsAreWidened) {
  OrtCheckpoint before = AfterSteps(7), after = AfterSteps(1);
  TensorMap state = OptimizerState(before, "adamw", "file");
  const TensorMap wide = state;
  for (auto& [name, tensor] : state) {
    if (name != "optimizer.step") {
      tensor = ConvertTo(tensor, DType::kBFloat16);
    }
  }
  for (const auto& [name, tensor] : before.trained) state[name] = tensor;
  state["f"] = Filled({4}, 5);
  TakeState(state, {.kind = "adamw", .moments = "bfloat16"}, "file", &after);
  const TensorMap again = OptimizerState(after, "adamw", "file");
  for (const auto& [name, tensor] : wide) {
    EXPECT_TRUE(Identical(tensor, again.at(name))) << name;
  }
}

// Codes 0x38, 0x40 and 0x7F are 1, 2 and NaN; a block has one scale.
TEST(OrtState, CodesBecomeFloats) {
  OrtCheckpoint c = AfterSteps(7);
  TensorMap state = OptimizerState(c, "adamw", "file");
  state["w"] = Filled({2, 3}, 1);
  state["b"] = Filled({3}, 1);
  for (const char* moment : {"w.exp_avg", "w.exp_avg_sq"}) {
    state[moment] = Tensor::From<E4M3>(
        {2, 3},
        {E4M3{0x38}, E4M3{0x40}, E4M3{0}, E4M3{0x38}, E4M3{0x40}, E4M3{0x7F}});
    state[std::string(moment) + ".scale"] =
        Tensor::From<float>({2, 1}, {0.5f, 3});
  }
  TakeState(state, {.kind = "adamw"}, "file", &c);
  const TensorMap kept = OptimizerState(c, "adamw", "file");
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const float first[] = {0.5f, 1, 0, 3, 6}, second[] = {0.25f, 1, 0, 9, 36};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(kept.at("w.exp_avg").data<float>()[i], first[i]);
    EXPECT_EQ(kept.at("w.exp_avg_sq").data<float>()[i], second[i]);
  }
  EXPECT_NE(kept.at("w.exp_avg").data<float>()[5],
            kept.at("w.exp_avg").data<float>()[5]);
  EXPECT_EQ(kept.at("w.exp_avg_sq").data<float>()[5], kInfinite);
  state.erase("w.exp_avg.scale");
  EXPECT_THROW(TakeState(state, {.kind = "adamw"}, "file", &c), Error);
}

TEST(OrtState, WithoutMomentsGivesZeros) {
  OrtCheckpoint c = AfterSteps(7);
  TensorMap state = {{"w", Filled({2, 3}, 1)},
                     {"b", Filled({3}, 1)},
                     {"optimizer.step", Tensor::Scalar(int64_t{3})}};
  TakeState(state, {.kind = "sgd"}, "file", &c);
  ASSERT_EQ(c.groups[0].parameters[0].moments.size(), 1u);
  EXPECT_EQ(c.groups[0].parameters[0].moments[0].second.data<float>()[0], 0);
  state.erase("optimizer.step");
  TakeState(state, {}, "file", &c);
  EXPECT_TRUE(c.groups.empty());
  state.erase("b");
  EXPECT_THROW(TakeState(state, {}, "file", &c), Error);
}

TEST(OrtState, HoldsNoStateOfOtherOptimizers) {
  OrtCheckpoint c = AfterSteps(7);
  const TensorMap state = {{"w", Filled({2, 3}, 1)},
                           {"b", Filled({3}, 1)},
                           {"optimizer.step", Tensor::Scalar(int64_t{3})}};
  for (const char* kind : {"muon", "rule.onnx"}) {
    EXPECT_THROW(TakeState(state, {.kind = kind}, "file", &c), Error) << kind;
  }
  EXPECT_EQ(c.groups[0].step, 7);
}

}  // namespace
}  // namespace onnx_fp8
