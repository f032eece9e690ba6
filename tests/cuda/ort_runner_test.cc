// SPDX-License-Identifier: Apache-2.0
//
// Groups of an ONNX Runtime session on the device: feeds and results are the
// session's, on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "graph/fp8/gemm_decision.h"
#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/recipe_text.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/ort/graph_runner.h"
#include "providers/ort/node_support.h"
#include "providers/ort/rewrite_products.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/support/paths.h"
#include "tests/training/files.h"
#include "training/step/pipelines.h"

namespace onnx_fp8 {
namespace {

std::vector<Tensor> Results(GraphRunner& runner,
                            const std::vector<Tensor>& feeds,
                            uint64_t draw = 0) {
  GraphRunner::Call call = runner.Prepare(feeds);
  std::vector<Tensor> results;
  for (size_t i = 0; i < call.num_results(); ++i) {
    results.push_back(Tensor::Allocate(call.dtype(i), call.shape(i)));
  }
  call.Run(results, draw);
  return results;
}

constexpr char kHeads[] = R"(
input x: float[n,4]
const heads: int64[2] = {2,2}
const first: int64[1] = {0}
const w: float[4,4] = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}
s: int64[2] = Shape(x)
n: int64[1] = Gather(s, first)
to: int64[3] = Concat<axis=0>(n, heads)
h: float[n,4] = MatMul(x, w)
y: float[n,2,2] = Reshape(h, to)
z: float[n,2,2] = Tanh(y)
output z
output y
output x
)";

// A shape runs first, is recorded, and is repeated.
TEST(OrtRunnerOnCuda, ShapesMayChangeFromCallToCall) {
  GraphRunner cpu(ParseGraph(kHeads)), cuda(ParseGraph(kHeads), "cuda");
  for (int64_t n : {3, 3, 1, 3, 1, 3}) {
    Tensor x = RandomNormal({n, 4}, static_cast<uint64_t>(n));
    std::vector<Tensor> want = Results(cpu, {x}), got = Results(cuda, {x});
    ASSERT_EQ(got.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(got[i].shape(), want[i].shape());
      EXPECT_LT(LargestDifference(got[i], want[i]), 1e-5);
    }
    EXPECT_TRUE(Identical(got[2], x));
  }
}

// Feeds in the order of the model's inputs. Tokens are small numbers.
std::vector<Tensor> FeedsOf(const Graph& model,
                            const std::map<std::string, int64_t>& sizes) {
  std::vector<Tensor> feeds;
  for (const Value* input : model.inputs) {
    Shape shape = *input->shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] < 0) shape[i] = sizes.at(input->axis_names[i]);
    }
    if (input->dtype == DType::kFloat) {
      feeds.push_back(RandomNormal(shape, feeds.size() + 1));
      continue;
    }
    Tensor tokens = Tensor::Zeros(input->dtype, shape);
    for (int64_t i = 0; i < tokens.size(); ++i) {
      tokens.data<int64_t>()[i] = i % 7;
    }
    feeds.push_back(tokens);
  }
  return feeds;
}

void ExpectCpusResultsOfModel(const std::string& name,
                              const std::string& recipe, double relative) {
  std::shared_ptr<Graph> graph =
      ReadModel(SourcePath("tests/fixtures/" + name + "/d18.onnx"));
  if (!recipe.empty()) {
    Fp8Spec spec;
    spec.recipe = ParseRecipe(recipe);
    RewriteProducts({graph}, spec, nullptr);
  }
  GraphRunner cpu(graph, "cpu", FuseForward);
  GraphRunner cuda(graph, "cuda", FuseForward);
  std::vector<Tensor> feeds = FeedsOf(*graph, {{"batch", 2}, {"seq", 16}});
  std::vector<Tensor> want = Results(cpu, feeds);
  for (int repeat = 0; repeat < 2; ++repeat) {
    std::vector<Tensor> got = Results(cuda, feeds);
    double largest = 0;
    for (int64_t i = 0; i < want[0].size(); ++i) {
      largest = std::max(largest, std::fabs(DoubleAt(want[0], i)));
    }
    EXPECT_LT(LargestDifference(got[0], want[0]), relative * largest);
  }
}

TEST(OrtRunnerOnCuda, ModelsGiveTheCpusResults) {
  ExpectCpusResultsOfModel("mlp", "", 1e-5);
  ExpectCpusResultsOfModel("nanogpt", "", 1e-5);
  ExpectCpusResultsOfModel("vit", "", 1e-5);
  ExpectCpusResultsOfModel("llama", "", 1e-5);
}

TEST(OrtRunnerOnCuda, RecipesGiveTheCpusResults) {
  ExpectCpusResultsOfModel("nanogpt", "tensorwise", 1e-2);
}

// A queue takes the work of one thread at a time.
TEST(OrtRunnerOnCuda, CallsOfThreadsDoNotMeet) {
  GraphRunner runner(ParseGraph(kHeads), "cuda");
  std::vector<Tensor> feeds, expected;
  for (uint64_t i = 0; i < 3; ++i) {
    feeds.push_back(RandomNormal({2 + static_cast<int64_t>(i) % 2, 4}, i));
    expected.push_back(Results(runner, {feeds.back()})[0]);
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(3, 0);
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 10; ++k) {
        wrong[t] += !Identical(Results(runner, {feeds[t]})[0], expected[t]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

// The device tells of bad data when results are read; the next call is clean.
TEST(OrtRunnerOnCuda, ErrorsNameTheNodeAndLeaveNothingBehind) {
  GraphRunner runner(ParseGraph(R"(
input x: float[4]
input i: int64[1]
y: float[1] = Gather(x, i)
output y
)"),
                     "cuda");
  Tensor x = RandomNormal({4}, 1);
  for (int repeat = 0; repeat < 3; ++repeat) {
    ExpectError(
        [&] {
          Results(runner, {x, Tensor::Ints({9})});
        },
        "[Gather -> y] expected indices in -4…3, got 9");
    Tensor y = Results(runner, {x, Tensor::Ints({2})})[0];
    EXPECT_EQ(y.data<float>()[0], x.data<float>()[2]);
  }
}

TEST(OrtRunnerOnCuda, RunsDrawOtherNumbers) {
  const char* text = R"(
input x: float[64]
const p: float = {0.5}
const yes: bool = {1}
y: float[64], m: bool[64] = Dropout(x, p, yes)
output y
)";
  GraphRunner cpu(ParseGraph(text)), cuda(ParseGraph(text), "cuda");
  Tensor x = RandomNormal({64}, 1);
  for (uint64_t draw : {0, 1, 2, 3}) {
    EXPECT_TRUE(
        Identical(Results(cuda, {x}, draw)[0], Results(cpu, {x}, draw)[0]));
  }
}

// ---- which nodes run on the device

bool Runs(const KernelRegistry& kernels, const std::string& text) {
  auto graph = ParseGraph(text);
  return RunsOn(kernels, graph->nodes().front());
}

TEST(OrtRunnerOnCuda, NodesWithoutAKernelAreKnown) {
  const char* both[] = {
      "input x: float[n]\ny: float[n] = Tanh(x)\noutput y\n",
      "input x: float[n]\ny: float[n] = Celu<alpha=2.0>(x)\noutput y\n",
      "input x: float[n,m]\ny: float[n,m] = "
      "MeanVarianceNormalization<axes=[0]>(x)\noutput y\n"};
  for (const char* text : both) {
    EXPECT_TRUE(Runs(CudaKernels(), text)) << text;
    EXPECT_TRUE(Runs(CpuKernels(), text)) << text;
  }
  const char* on_cpu[] = {
      "input x: float[n]\ny: int64[1,m] = NonZero(x)\noutput y\n",
      "input x: float[n]\ny: uint8[n], s: float, z: uint8 = "
      "DynamicQuantizeLinear(x)\noutput y\n"};
  for (const char* text : on_cpu) {
    EXPECT_FALSE(Runs(CudaKernels(), text)) << text;
    EXPECT_TRUE(Runs(CpuKernels(), text)) << text;
  }
}

TEST(OrtRunnerOnCuda, ADeviceReadsSizesOnTheHost) {
  auto graph = ParseGraph(
      "input x: float[n]\ninput k: int64[1]\n"
      "y: float[m], i: int64[m] = TopK(x, k)\noutput y\n");
  EXPECT_EQ(SizesOf(CudaKernels(), graph->nodes().front()),
            std::vector<size_t>{1});
}

}  // namespace
}  // namespace onnx_fp8
