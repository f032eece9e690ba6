// SPDX-License-Identifier: Apache-2.0
//
// Collectives of a graph on several ranks, which are threads here.
#include <gtest/gtest.h>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/expand_missing.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/support/thread_ranks.h"

namespace onnx_fp8 {
namespace {

// One run of a graph on a rank.
TensorMap RunOnRank(Communicator* ranks, const std::string& text,
                    const TensorMap& feeds) {
  const auto provider = MakeCpuProvider();
  Executor executor(ParseGraph(text), *provider);
  const Groups groups = {{"dp", ranks}};
  if (ranks) executor.set_groups(&groups);
  TensorMap state;
  return executor.Run(feeds, state);
}

std::string ErrorOfCall(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Tensor FloatsOfRank(const std::vector<float>& values) {
  return Tensor::From<float>({static_cast<int64_t>(values.size())}, values);
}

std::vector<float> FloatsIn(const TensorMap& results, const char* name) {
  const Tensor& t = results.at(name);
  return {t.data<float>(), t.data<float>() + t.size()};
}

constexpr char kCollectives[] = R"(
input x: float[2]
input wide: float[6]
sum: float[2] = onnx_fp8.AllReduce<group="dp", ranks=3, reduction="sum">(x)
max: float[2] = onnx_fp8.AllReduce<group="dp", ranks=3, reduction="max">(x)
all: float[6] = onnx_fp8.AllGather<group="dp", ranks=3>(x)
block: float[2] = onnx_fp8.ReduceScatter<group="dp", ranks=3>(wide)
root: float[2] = onnx_fp8.Broadcast<group="dp", ranks=3, root=1>(x)
output sum
output max
output all
output block
output root
)";

TEST(CollectivesTest, Results) {
  RunRanks(3, [](Communicator& ranks) {
    const float r = static_cast<float>(ranks.rank());
    const TensorMap y =
        RunOnRank(&ranks, kCollectives,
                  {{"x", FloatsOfRank({r, -r})},
                   {"wide", FloatsOfRank({r, r, 10 * r, 10 * r, 100 * r, 1})}});
    using V = std::vector<float>;
    EXPECT_EQ(FloatsIn(y, "sum"), (V{3, -3}));
    EXPECT_EQ(FloatsIn(y, "max"), (V{2, 0}));
    EXPECT_EQ(FloatsIn(y, "all"), (V{0, 0, 1, -1, 2, -2}));
    const V blocks[] = {{3, 3}, {30, 30}, {300, 3}};
    EXPECT_EQ(FloatsIn(y, "block"), blocks[ranks.rank()]);
    EXPECT_EQ(FloatsIn(y, "root"), (V{1, -1}));
  });
}

// FP8 travels as bytes.
TEST(CollectivesTest, GathersCodes) {
  RunRanks(2, [](Communicator& ranks) {
    const auto code = static_cast<uint8_t>(0x40 + ranks.rank());
    const TensorMap y =
        RunOnRank(&ranks, R"(
input x: float8e4m3fn[1]
y: float8e4m3fn[2] = onnx_fp8.AllGather<group="dp", ranks=2>(x)
output y
)",
                  {{"x", Tensor::From<E4M3>({1}, std::vector<E4M3>{{code}})}});
    EXPECT_EQ(y.at("y").data<E4M3>()[0].bits, 0x40);
    EXPECT_EQ(y.at("y").data<E4M3>()[1].bits, 0x41);
    EXPECT_EQ(ranks.wire_bytes().all_gather, 16 + 1);
  });
}

// Gathers of a bucket are one call, whatever their dtypes; a result that keeps
// fewer rows than the ranks have does so there, too.
TEST(CollectivesTest, GathersOfABucket) {
  RunRanks(2, [](Communicator& ranks) {
    const float r = static_cast<float>(ranks.rank());
    const auto code = static_cast<uint8_t>(0x40 + ranks.rank());
    const TensorMap y = RunOnRank(
        &ranks, R"(
input x: float[2]
input codes: float8e4m3fn[1]
a: float[4] = onnx_fp8.AllGather<group="dp", ranks=2, bucket=1>(x)
b: float[3] = onnx_fp8.AllGather<group="dp", ranks=2, rows=3, bucket=1>(x)
c: float8e4m3fn[2] = onnx_fp8.AllGather<group="dp", ranks=2, bucket=1>(codes)
output a
output b
output c
)",
        {{"x", FloatsOfRank({r, 10 * r + 5})},
         {"codes", Tensor::From<E4M3>({1}, std::vector<E4M3>{{code}})}});
    EXPECT_EQ(FloatsIn(y, "a"), (std::vector<float>{0, 5, 1, 15}));
    EXPECT_EQ(FloatsIn(y, "b"), (std::vector<float>{0, 5, 1}));
    EXPECT_EQ(y.at("c").data<E4M3>()[0].bits, 0x40);
    EXPECT_EQ(y.at("c").data<E4M3>()[1].bits, 0x41);
    EXPECT_EQ(ranks.wire_bytes().all_gather, 16 + 8 + 8 + 1);
  });
}

constexpr char kOneRank[] = R"(
input x: float[2]
y: float[2] = onnx_fp8.AllReduce<group="dp", ranks=1, reduction="sum">(x)
output y
)";

// A step that was built for one rank needs no group.
TEST(CollectivesTest, OneRank) {
  const TensorMap y =
      RunOnRank(nullptr, kOneRank, {{"x", FloatsOfRank({1, 2})}});
  EXPECT_EQ(FloatsIn(y, "y"), (std::vector<float>{1, 2}));
}

constexpr char kTwoRanks[] = R"(
input x: float[2]
a: float[2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
b: float[2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="max">(x)
output a
output b
)";

TEST(CollectivesTest, AnotherGroup) {
  const TensorMap feeds = {{"x", FloatsOfRank({1, 2})}};
  EXPECT_EQ(
      ErrorOfCall([&] { RunOnRank(nullptr, kTwoRanks, feeds); }),
      "[onnx_fp8.AllReduce -> a] expected 2 ranks in the group dp, got no "
      "such group");
  EXPECT_EQ(
      ErrorOfCall([&] {
        RunRanks(3, [&](Communicator& ranks) {
          RunOnRank(&ranks, kTwoRanks, feeds);
        });
      }),
      "[onnx_fp8.AllReduce -> a] expected 2 ranks in the group dp, got 3");
}

// Ranks with other graphs would wait for each other, or mix up results.
TEST(CollectivesTest, AnotherOrder) {
  const std::string swapped = R"(
input x: float[2]
b: float[2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="max">(x)
a: float[2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
output a
output b
)";
  const TensorMap feeds = {{"x", FloatsOfRank({1, 2})}};
  EXPECT_EQ(
      ErrorOfCall([&] {
        RunRanks(2, [&](Communicator& ranks) {
          RunOnRank(&ranks, ranks.rank() == 0 ? kTwoRanks : swapped, feeds);
        });
      }),
      "[collectives of the plan] expected a: float[2] = "
      "onnx_fp8.AllReduce<group=\"dp\", ranks=2, reduction=\"sum\">, as "
      "rank 0, got b: float[2] = onnx_fp8.AllReduce<group=\"dp\", ranks=2, "
      "reduction=\"max\"> on rank 1");
}

// On rank 1 a collective of another group stands inside the bucket, which then
// is two calls.
TEST(CollectivesTest, AnotherCall) {
  const auto text = [](const char* first, const char* second) {
    return Concat(R"(
input x: float[2]
a: float[4] = onnx_fp8.AllGather<bucket=1, group="dp", ranks=2>(x)
)",
                  first, second, "output a\noutput b\noutput t\n");
  };
  const char* gather =
      "b: float[4] = onnx_fp8.AllGather<bucket=1, group=\"dp\", ranks=2>(x)\n";
  const char* other =
      "t: float[2] = onnx_fp8.AllReduce<group=\"tp\", ranks=1, "
      "reduction=\"sum\">(x)\n";
  const TensorMap feeds = {{"x", FloatsOfRank({1, 2})}};
  const std::string node =
      "a: float[4] = onnx_fp8.AllGather<bucket=1, group=\"dp\", ranks=2>";
  EXPECT_EQ(ErrorOfCall([&] {
              RunRanks(2, [&](Communicator& ranks) {
                RunOnRank(&ranks,
                          ranks.rank() == 0 ? text(gather, other)
                                            : text(other, gather),
                          feeds);
              });
            }),
            "[collectives of the plan] expected " + node +
                ", in one call with 1 more, as rank 0, got " + node +
                " on rank 1");
}

// Only a collective of one rank has a body and may be constant.
TEST(CollectivesTest, OnlyOneRankHasABody) {
  const auto expand = [](const char* text) {
    const auto graph = ParseGraph(text);
    EXPECT_FALSE(MakeCpuEvaluator()->CanEvaluate(*graph->nodes().begin()));
    ExpandMissing(*graph, CpuKernels(), {"onnx_fp8.AllReduce"}, nullptr);
  };
  expand(kOneRank);
  EXPECT_EQ(ErrorOfCall([&] { expand(kTwoRanks); }),
            "[onnx_fp8.AllReduce -> a] expected a kernel for a collective of 2 "
            "ranks, got none: its body is that of one rank");
}

// The comparison comes once for a plan.
TEST(CollectivesTest, OrderIsComparedOnce) {
  RunRanks(2, [](Communicator& ranks) {
    const auto provider = MakeCpuProvider();
    Executor executor(ParseGraph(kTwoRanks), *provider);
    const Groups groups = {{"dp", &ranks}};
    executor.set_groups(&groups);
    TensorMap state;
    for (int i = 0; i < 3; ++i)
      executor.Run({{"x", FloatsOfRank({1, 2})}}, state);
    EXPECT_EQ(ranks.wire_bytes().all_gather, 16);
  });
}

}  // namespace
}  // namespace onnx_fp8
