// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "providers/cuda/cuda_provider.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/memory_limit.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

TEST(CudaProvider, CopiesTensors) {
  auto cuda = MakeCudaProvider();
  EXPECT_EQ(cuda->Name(), "cuda");
  EXPECT_NE(cuda->Describe().isa.find("sm_90"), std::string::npos);
  Tensor x = RandomNormal({3, 5}, 1);
  Tensor ours = cuda->Clone(x);
  EXPECT_FALSE(ours.on_host());
  EXPECT_TRUE(Identical(cuda->ToHost(cuda->Clone(ours)), x));
  Tensor empty = cuda->Clone(Tensor::Zeros(DType::kFloat, {0, 2}));
  EXPECT_EQ(cuda->ToHost(empty).size(), 0);
}

TEST(CudaProvider, SaysThatMemoryIsOut) {
  auto cuda = MakeCudaProvider();
  ExpectError([&] { cuda->NewTensor(DType::kFloat, {int64_t{1} << 40}); },
              "out of GPU memory");
  Tensor x = RandomNormal({7}, 1);  // the provider still works
  EXPECT_TRUE(Identical(cuda->ToHost(cuda->Clone(x)), x));
}

TEST(CudaProvider, PlacesResultsAtMultiplesOf256) {
  std::shared_ptr<Graph> graph = ParseGraph(R"(
input x: float[5]
y: float[5] = Neg(x)
z: float[5] = Exp(x)
w: float[5] = Sub(y, z)
output w
)");
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  for (const Tenant& tenant : executor.plan().tenants) {
    EXPECT_EQ(tenant.at % 256, 0u) << tenant.value->name;
  }
  EXPECT_EQ(executor.plan().arena_bytes, 512u);
  auto memory = reinterpret_cast<uintptr_t>(cuda->Allocate(1).get());
  EXPECT_EQ(memory % 256, 0u);
}

// 48 MiB of results and 16 MiB of state do not fit into 24 MiB.
TEST(CudaProvider, AnErrorOfMemorySaysWhatThePlanNeeds) {
  std::shared_ptr<Graph> graph = ParseGraph(R"(
input x: float[4194304]
param s: float[4194304]
y: float[4194304] = Add(x, s)
z: float[4194304] = Sub(x, s)
w: float[4194304] = Mul(y, z)
v: float[4194304] = Sub(y, z)
u: float[4194304] = Sum(y, z, w, v)
output u
update s = w
)");
  auto cuda = MakeCudaProvider();
  MemoryLimit limit(24 << 20);
  auto run = [&] {
    TensorMap state;
    Executor(graph, *cuda).Run({}, state);
  };
  ExpectError(run, "out of GPU memory");
  ExpectError(run, " free of 25165824;");
  ExpectError(run,
              "the plan needs 50331648 bytes for results and 16777216 for "
              "state");
}

// The first Run is not recorded, the second one is, the others repeat it.
TEST(CudaProvider, RepeatsARunAsAGraph) {
  std::shared_ptr<Graph> graph = ParseGraph(R"(
input x: float[6]
y: float[6] = Neg(x)
z: float[6] = Exp(y)
output z
output x
)");
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  std::vector<TensorMap> results;
  for (uint64_t i = 0; i < 4; ++i) {
    emulation::ResetCounts();
    TensorMap state;
    results.push_back(executor.Run({{"x", RandomNormal({6}, i)}}, state));
    EXPECT_EQ(emulation::Calls("cudaGraphLaunch"), i == 0 ? 0 : 1);
    EXPECT_EQ(emulation::Calls("cudaStreamSynchronize"), 0);
    EXPECT_EQ(emulation::Calls("cudaLaunchKernel"), i < 2 ? 2 : 0);
  }
  for (uint64_t i = 0; i < 4; ++i) {
    Tensor x = RandomNormal({6}, i),
           want = RunNode1("Exp", {RunNode1("Neg", {x})});
    EXPECT_LT(LargestDifference(cuda->ToHost(results[i].at("z")), want), 1e-5);
    EXPECT_TRUE(Identical(cuda->ToHost(results[i].at("x")), x));
  }
}

// Host work of a training step: feeds are copied, a graph is launched.
TEST(CudaProvider, AStepWaitsForNothing) {
  TempDir dir;
  auto session = MakeSession(Options(WriteMlp(dir, false)), MakeCudaProvider());
  for (uint64_t i = 0; i < 3; ++i) session->Step(Batch(i), 1e-2);
  emulation::ResetCounts();
  session->Start({Batch(3)}, 1e-2);
  EXPECT_EQ(emulation::Calls("cudaGraphLaunch"), 1);
  EXPECT_EQ(emulation::Calls("cudaLaunchKernel"), 0);
  EXPECT_EQ(emulation::Calls("cudaStreamSynchronize"), 0);
  EXPECT_EQ(emulation::Calls("cudaMalloc"), 0);
  session->Finish();
  EXPECT_EQ(emulation::Calls("cudaStreamSynchronize"), 1);
}

// Whether a run of the graph starts a kernel whose name has this word.
bool Starts(const std::string& text, const std::string& word) {
  std::shared_ptr<Graph> graph = ParseGraph(text);
  StoreNarrow(*graph, CudaKernels());
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  TensorMap feeds = RandomFeeds(*graph, {}), state;
  emulation::ResetCounts();
  executor.Run(feeds, state);
  cuda->Synchronize();
  return std::ranges::any_of(emulation::Traffic(), [&](const auto& kernel) {
    return kernel.first.find(word) != std::string::npos;
  });
}

constexpr char kRowwise[] = R"(
input qa: float8e4m3fn[32,64]
input qb: float8e4m3fn[48,64]
input sa: float[32,1]
input sb: float[48,1]
y: float[32,48] = onnx_fp8.ScaledMatMulBlock<transA=0, transB=1, a_block_rows=1, a_block_columns=0, b_block_rows=1, b_block_columns=0>(qa, sa, qb, sb)
)";

// Scales of rows and columns are part of the product.
TEST(CudaProvider, RowwiseProductsNeedNoPassOverTheResult) {
  EXPECT_FALSE(Starts(std::string(kRowwise) + "output y\n", "FinishKernel"));
  EXPECT_FALSE(Starts(std::string(kRowwise) +
                          "r: float[32,48] = onnx_fp8.RoundTo<to=16>(y)\n"
                          "output r\n",
                      "FinishKernel"));
}

// Blocks of 128 are not decoded.
TEST(CudaProvider, BlockwiseProductsMultiplyCodes) {
  std::string text = R"(
input qa: float8e4m3fn[32,256]
input qb: float8e4m3fn[256,128]
input sa: float[32,2]
input sb: float[2,1]
y: float[32,128] = onnx_fp8.ScaledMatMulBlock<transA=0, transB=0, a_block_rows=1, a_block_columns=128, b_block_rows=128, b_block_columns=128>(qa, sa, qb, sb)
output y
)";
  EXPECT_TRUE(Starts(text, "PackScalesKernel"));
  EXPECT_FALSE(Starts(text, "DequantizeKernel"));
}

TEST(CudaProvider, ReportsBadDataLater) {
  std::shared_ptr<Graph> graph = ParseGraph(R"(
input x: float[3,2]
input i: int64[2]
y: float[2,2] = Gather(x, i)
output y
)");
  auto cuda = MakeCudaProvider();
  Executor executor(graph, *cuda);
  TensorMap state;
  auto run = [&](int64_t index) {
    TensorMap feeds = {{"x", Count({3, 2})},
                       {"i", Vector<int64_t>({0, index})}};
    return cuda->ToHost(executor.Run(feeds, state).at("y"));
  };
  ExpectError([&] { run(3); }, "] expected indices in -3…2, got 3");
  EXPECT_EQ(Doubles(run(-1)), (std::vector<double>{0, 1, 4, 5}));
}

}  // namespace
}  // namespace onnx_fp8
