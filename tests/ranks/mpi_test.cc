// SPDX-License-Identifier: Apache-2.0
//
// mpirun runs this program on several ranks.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/check.h"
#include "collectives/agreement.h"
#include "collectives/launcher.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/ranks/world.h"
#include "tests/support/collective_cases.h"

namespace onnx_fp8 {
namespace {

TEST(MpiTest, SeesAllRanks) {
  const std::optional<Launcher> launcher = FindLauncher(std::getenv);
  ASSERT_TRUE(launcher.has_value()) << "mpirun runs this test";
  EXPECT_EQ(World().size(), launcher->size);
  EXPECT_EQ(World().rank(), launcher->rank);
  EXPECT_GE(World().size(), 2);
}

TEST(MpiTest, AllReduce) { ExpectAllReduce(World()); }
TEST(MpiTest, AllGather) { ExpectAllGather(World()); }
TEST(MpiTest, ReduceScatter) { ExpectReduceScatter(World()); }
TEST(MpiTest, Broadcast) { ExpectBroadcast(World()); }

TEST(MpiTest, Disagreement) {
  try {
    CheckAgreement(World(), "order", {World().rank() == 1 ? "a" : "b"});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[order] expected b, as rank 0, got a on rank 1");
  }
}

// A graph that sums x over the ranks.
std::shared_ptr<Graph> SumGraph(const std::string& reduction) {
  return ParseGraph(Concat(R"(
input x: float[3]
y: float[3] = onnx_fp8.AllReduce<group="dp", ranks=)",
                           World().size(), R"(, reduction=")", reduction,
                           R"(">(x)
output y
)"));
}

TEST(MpiTest, NodesOfAGraph) {
  const auto provider = MakeCpuProvider();
  const Groups groups = {{"dp", &World()}};
  Executor executor(SumGraph("sum"), *provider);
  executor.set_groups(&groups);
  TensorMap state;
  const float r = static_cast<float>(World().rank());
  const Tensor x = Tensor::From<float>({3}, std::vector<float>{r, 1, -r});
  const Tensor y = executor.Run({{"x", x}}, state).at("y");
  const float n = static_cast<float>(World().size());
  EXPECT_EQ(y.data<float>()[0], n * (n - 1) / 2);
  EXPECT_EQ(y.data<float>()[1], n);
  EXPECT_EQ(y.data<float>()[2], -n * (n - 1) / 2);
}

TEST(MpiTest, OtherGraphs) {
  const auto provider = MakeCpuProvider();
  const Groups groups = {{"dp", &World()}};
  Executor executor(SumGraph(World().rank() == 1 ? "max" : "sum"), *provider);
  executor.set_groups(&groups);
  TensorMap state;
  const Tensor x = Tensor::From<float>({3}, std::vector<float>{0, 0, 0});
  try {
    executor.Run({{"x", x}}, state);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.ends_with("reduction=\"max\"> on rank 1")) << text;
  }
}

}  // namespace
}  // namespace onnx_fp8
