// SPDX-License-Identifier: Apache-2.0
#include "training/state/frozen_weights.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "providers/cpu/cpu_provider.h"

namespace onnx_fp8 {
namespace {

// Two weights, and the codes that a plan reads of them.
struct TwoFrozen {
  TwoFrozen() {
    for (const char* name : {"a", "b"}) {
      frozen.Set(name, TensorSource(DType::kFloat, {2, 2}, [this, name] {
                   ++pulled[name];
                   return Tensor::Zeros(DType::kFloat, {2, 2});
                 }));
    }
  }

  void Provide() {
    frozen.Provide(codes, Plan{}, &state, [this](const FrozenCodes& one) {
      for (const char* name : {"a", "b"}) {
        EXPECT_EQ(state.Has(name), one.weights.front() == name) << name;
      }
      state.Set(one.copies.front(), Tensor::Scalar(1.0f));
      ++made;
    });
  }

  std::unique_ptr<ExecutionProvider> provider = MakeCpuProvider();
  StateStore state{*provider};
  FrozenWeights frozen;
  std::map<std::string, int> pulled;
  int made = 0;
  const std::vector<FrozenCodes> codes = {{nullptr, {"a"}, {"rows of a"}},
                                          {nullptr, {"a"}, {"columns of a"}},
                                          {nullptr, {"b"}, {"rows of b"}}};
};

TEST(FrozenWeights, AreReadOnceAndStayNoLongerThanTheirCodesAreMade) {
  TwoFrozen two;
  two.Provide();
  EXPECT_EQ(two.made, 3);
  EXPECT_EQ(two.pulled["a"], 1);
  EXPECT_EQ(two.pulled["b"], 1);
  EXPECT_EQ(two.state.tensors().size(), 3u);
  two.Provide();
  EXPECT_EQ(two.made, 3);
}

TEST(FrozenWeights, CodesFollowOtherNumbers) {
  TwoFrozen two;
  two.Provide();
  Checkpoint checkpoint;
  checkpoint.state = {{"a", Tensor::Zeros(DType::kFloat, {2, 2})},
                      {"c", Tensor::Scalar(1.0f)}};
  two.frozen.Take(&checkpoint);
  EXPECT_EQ(checkpoint.state.size(), 1u);
  two.frozen.Forget(&two.state);
  EXPECT_TRUE(two.state.tensors().empty());
  two.Provide();
  EXPECT_EQ(two.made, 6);
  EXPECT_EQ(two.pulled["a"], 1);
}

TEST(FrozenWeights, KnowTheirFileUntilTheirNumbersChange) {
  TwoFrozen two;
  const auto file = [&]() -> std::optional<FrozenFile>& {
    SaveOptions save;
    two.frozen.AddTo(&save);
    EXPECT_EQ(save.frozen.size(), 2u);
    return *save.frozen_file;
  };
  EXPECT_FALSE(file().has_value());
  file() = FrozenFile{"written", ""};
  EXPECT_EQ(file()->path, "written");
  const Tensor other = Tensor::Zeros(DType::kFloat, {2, 2});
  two.frozen.Set("a", other);
  EXPECT_FALSE(file().has_value());
  // A checkpoint whose file has both.
  Checkpoint checkpoint;
  checkpoint.frozen_file = FrozenFile{"read", ""};
  checkpoint.frozen = Sources({{"a", other}, {"b", other}});
  two.frozen.Take(&checkpoint);
  EXPECT_EQ(file()->path, "read");
  EXPECT_TRUE(checkpoint.frozen.empty());
  // One whose file has a weight more, which is trained from now on.
  checkpoint.frozen = Sources({{"a", other}, {"b", other}, {"c", other}});
  two.frozen.Take(&checkpoint);
  EXPECT_FALSE(file().has_value());
  EXPECT_EQ(checkpoint.frozen.size(), 1u);
  // And one whose file has one of them.
  checkpoint.frozen = Sources({{"a", other}});
  checkpoint.state = {{"b", other}};
  two.frozen.Take(&checkpoint);
  EXPECT_FALSE(file().has_value());
}

TEST(FrozenWeights, SayTheBytesOfTheirFile) {
  TwoFrozen two;
  EXPECT_EQ(two.frozen.FileRemark(),
            "checkpoints share a file with the frozen weights, of 32 bytes");
  two.frozen.Set("a", TensorSource(
                          DType::kFloat, {2, 2},
                          [] {
                            return Tensor::Zeros(DType::kFloat, {2, 2});
                          },
                          DType::kBFloat16));
  EXPECT_EQ(two.frozen.FileRemark(),
            "checkpoints share a file with the frozen weights, of 24 bytes");
  EXPECT_EQ(FrozenWeights().FileRemark(), "");
}

TEST(FrozenWeights, DerivedStateIsTheWeightsAndTheirCodes) {
  TwoFrozen two;
  EXPECT_FALSE(two.frozen.IsDerived("rows of a"));
  two.Provide();
  for (const char* name : {"a", "b", "rows of a", "rows of b"}) {
    EXPECT_TRUE(two.frozen.IsDerived(name)) << name;
  }
  EXPECT_FALSE(two.frozen.IsDerived("c"));
}

TEST(FrozenWeights, AreMatricesThatNothingElseNeedsAsFloats) {
  Graph graph;
  const auto add = [&](const char* name, Shape shape, Role role) {
    Value* value =
        graph.AddInitializer(name, Tensor::Zeros(DType::kFloat, shape));
    value->role = role;
    return value;
  };
  add("trained", {2, 2}, Role::kParameter);
  add("frozen", {2, 2}, Role::kFrozen);
  add("bias", {2}, Role::kFrozen);
  add("mask", {2, 2}, Role::kNone);
  graph.outputs = {add("returned", {2, 2}, Role::kFrozen)};
  EXPECT_EQ(FrozenMatrices(graph), std::set<std::string>{"frozen"});
}

}  // namespace
}  // namespace onnx_fp8
