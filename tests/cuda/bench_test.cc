// SPDX-License-Identifier: Apache-2.0
// What `bench nodes`, `bench attention` and `bench linear` run on a GPU.
#include <gtest/gtest.h>

#include <map>

#include "base/temporary_folder.h"
#include "cli/bench/layer_model.h"
#include "cli/bench/node_cases.h"
#include "cli/bench/node_speed.h"
#include "cli/bench/random_tensor.h"
#include "cli/bench/resident_layer.h"
#include "cli/bench/sliced_attention.h"
#include "providers/cuda/cuda_provider.h"
#include "training/make_provider.h"

namespace onnx_fp8 {
namespace {

// Ops without a kernel of the CPU have tests of their own.
TEST(CudaBenchNodes, AreThoseOfTheCpu) {
  auto cuda = MakeCudaProvider();
  auto cpu = MakeProvider("cpu");
  std::vector<NodeCase> cases = ProductCases(SmallNodeSizes());
  for (const NodeCase& node : OtherCases(SmallNodeSizes(), DType::kBFloat16)) {
    cases.push_back(node);
  }
  std::map<std::string, int> compared;
  for (const NodeCase& node : cases) {
    SCOPED_TRACE(node.op + ", " + node.what);
    ASSERT_TRUE(cuda->Kernels().Find(node.domain, node.op));
    if (!cpu->Kernels().Find(node.domain, node.op)) continue;
    auto graph = MakeNodeGraph(node, DType::kBFloat16,
                               {&cuda->Kernels(), &cpu->Kernels()});
    EXPECT_LE(Difference(graph->nodes().front(), *cuda, *cpu), 0.02);
    ++compared[node.group];
  }
  EXPECT_EQ(compared["products"], 48);
  EXPECT_EQ(compared["casts"], 7);
}

TEST(CudaBenchNodes, AreRecorded) {
  auto cuda = MakeCudaProvider();
  NodeCase node = OtherCases(SmallNodeSizes(), DType::kBFloat16).front();
  auto graph = MakeNodeGraph(node, DType::kBFloat16, {&cuda->Kernels()});
  EXPECT_GT(TimeNode(graph->nodes().front(), *cuda, 0).runs, 2);
}

// Each with a part of the batch.
TEST(CudaBenchAttention, RunsInSlices) {
  auto cuda = MakeCudaProvider();
  SlicedAttention one = {.dtype = "bf16",
                         .sizes = {.batch = 4,
                                   .sequence = 16,
                                   .heads = 2,
                                   .kv_heads = 2,
                                   .head_size = 8},
                         .slices = 2};
  Measure(*cuda, 0, &one);
  EXPECT_EQ(one.error + one.note, "");
  EXPECT_GT(one.forward.runs, 2);
  EXPECT_GT(one.backward.runs, 2);
  one.slices = 3;
  Measure(*cuda, 0, &one);
  EXPECT_EQ(one.note, "a batch of 4 has no 3 equal slices");
}

// The first run allocates, the second one is recorded, the third is repeated.
TEST(CudaBenchLayers, Run) {
  auto cuda = MakeCudaProvider();
  for (auto surroundings :
       {Surroundings::kNone, Surroundings::kNormAndSigmoid}) {
    for (const char* recipe : {"off", "tensorwise", "rowwise", "delayed"}) {
      SCOPED_TRACE(recipe);
      TemporaryFolder folder;
      SessionOptions options;
      options.recipe = ParseRecipe(recipe);
      options.dtype = DType::kBFloat16;
      options = LayerOptions(options, surroundings, {32, 16, 48},
                             folder / "layer.onnx");
      Tensor x = RandomTensor({32, 16}, DType::kFloat, 2);
      ResidentLayer layer(options, x, *cuda);
      for (int i = 0; i < 3; ++i) layer.Run();
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
