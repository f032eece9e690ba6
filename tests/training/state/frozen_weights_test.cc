// SPDX-License-Identifier: Apache-2.0
#include "training/state/frozen_weights.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
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
  TensorMap tensors = {{"a", Tensor::Zeros(DType::kFloat, {2, 2})},
                       {"c", Tensor::Scalar(1.0f)}};
  two.frozen.Take(&tensors);
  EXPECT_EQ(tensors.size(), 1u);
  two.frozen.Forget(&two.state);
  EXPECT_TRUE(two.state.tensors().empty());
  two.Provide();
  EXPECT_EQ(two.made, 6);
  EXPECT_EQ(two.pulled["a"], 1);
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
