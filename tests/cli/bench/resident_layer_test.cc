// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/resident_layer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/temporary_folder.h"
#include "cli/bench/layer_model.h"
#include "cli/bench/random_tensor.h"
#include "training/make_provider.h"

namespace onnx_fp8 {
namespace {

class ResidentLayerTest : public testing::Test {
 protected:
  // A layer with its recipe, in bfloat16, after two runs.
  std::unique_ptr<ResidentLayer> Run(Surroundings surroundings,
                                     const std::string& recipe) {
    TemporaryFolder folder;
    SessionOptions options;
    options.recipe = ParseRecipe(recipe);
    options.dtype = DType::kBFloat16;
    options = LayerOptions(options, surroundings, {32, 16, 48},
                           folder / "layer.onnx");
    Tensor x = RandomTensor({32, 16}, DType::kFloat, 2);
    auto layer = std::make_unique<ResidentLayer>(options, x, *provider_);
    layer->Run();
    layer->Run();
    return layer;
  }

  static int64_t Count(const ResidentLayer& layer, const std::string& op) {
    return std::ranges::count(layer.graph().nodes(), op, &Node::op);
  }

  std::unique_ptr<ExecutionProvider> provider_ = MakeProvider("cpu");
};

// Forward, dgrad and wgrad; nothing comes from the host or goes there.
TEST_F(ResidentLayerTest, HasThreeProductsAndNoFeeds) {
  for (const auto& [recipe, op] : {std::pair{"off", "Gemm"},
                                   {"tensorwise", "ScaledMatMul"},
                                   {"delayed", "ScaledMatMul"},
                                   {"rowwise", "ScaledMatMulBlock"}}) {
    SCOPED_TRACE(recipe);
    auto layer = Run(Surroundings::kNone, recipe);
    EXPECT_EQ(Count(*layer, op), 3);
    EXPECT_TRUE(layer->graph().inputs.empty());
    for (const Value* y : layer->graph().outputs) {
      EXPECT_EQ(y->producer->op, "Size");
    }
    // The gradients of input and weight, the loss, and in FP8 the amaxes.
    EXPECT_EQ(layer->graph().outputs.size(),
              std::string(recipe) == "off" ? 3 : 4);
  }
}

TEST_F(ResidentLayerTest, ItsInputIsRoundedAlready) {
  for (auto surroundings :
       {Surroundings::kNone, Surroundings::kNormAndSigmoid}) {
    auto layer = Run(surroundings, "tensorwise");
    const Value* x = layer->graph().Find(kLayerInput);
    EXPECT_EQ(x->data.dtype(), DType::kBFloat16);
    for (const Node* reader : x->uses) EXPECT_NE(reader->op, "RoundTo");
  }
}

}  // namespace
}  // namespace onnx_fp8
