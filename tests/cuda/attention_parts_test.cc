// SPDX-License-Identifier: Apache-2.0
//
// The gradient of attention in parts: their sizes, and their results beside the
// undivided gradient's, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>
#include <utility>
#include <vector>

#include "providers/cuda/attention/parts.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/bound_workspaces.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/cuda/attention_case.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

using cuda::EqualParts;
using cuda::LibraryParts;
using cuda::LibraryProblem;
using cuda::MostWorkspace;

constexpr size_t kGibibyte = size_t{1} << 30;

LibraryProblem Problem(int64_t b, int64_t tokens, int64_t heads, int64_t groups,
                       int64_t d) {
  return {.backward = true,
          .b = b,
          .t = tokens,
          .s = tokens,
          .heads = heads,
          .groups = groups,
          .d = d,
          .scale = 1,
          .causal = true,
          .keeps_lse = true,
          .q = {.batch = tokens * heads * d, .head = d, .row = heads * d},
          .k = {.batch = tokens * groups * d, .head = d, .row = groups * d},
          .v = {.batch = tokens * groups * d, .head = d, .row = groups * d},
          .y = {.batch = tokens * heads * d, .head = d, .row = heads * d}};
}

using PartSizes = std::pair<int64_t, int64_t>;  // batches and groups

PartSizes PartOf(const LibraryProblem& whole, size_t most) {
  LibraryProblem part = EqualParts(whole, most).part;
  return {part.b, part.groups};
}

TEST(AttentionParts, AreWholeIfTheyFit) {
  LibraryProblem whole = Problem(6, 64, 8, 4, 64);
  EXPECT_EQ(PartOf(whole, MostWorkspace(whole)), PartSizes(6, 4));
  EXPECT_EQ(PartOf(whole, MostWorkspace(whole) - 1), PartSizes(3, 4));
}

TEST(AttentionParts, AreBatchesThenGroups) {
  LibraryProblem whole = Problem(6, 64, 8, 4, 64);
  size_t group = MostWorkspace(whole) / 24;
  EXPECT_EQ(PartOf(whole, 12 * group), PartSizes(3, 4));
  EXPECT_EQ(PartOf(whole, 12 * group - 1), PartSizes(2, 4));
  EXPECT_EQ(PartOf(whole, 8 * group - 1), PartSizes(1, 4));
  EXPECT_EQ(PartOf(whole, 4 * group - 1), PartSizes(1, 2));
  EXPECT_EQ(PartOf(whole, 2 * group - 1), PartSizes(1, 1));
  EXPECT_EQ(EqualParts(whole, 2 * group - 1).count(), 24);
}

TEST(AttentionParts, HaveAFloorOfOneGroupOfOneBatch) {
  LibraryParts parts = EqualParts(Problem(6, 64, 8, 4, 64), 0);
  EXPECT_EQ(parts.part.b, 1);
  EXPECT_EQ(parts.part.groups, 1);
  EXPECT_EQ(parts.part.heads, 2);
  EXPECT_EQ(parts.count(), 24);
}

// Neither the forward pass nor sums in any order keep gradients of scores.
TEST(AttentionParts, AreOneOfOtherProblems) {
  LibraryProblem forward = Problem(6, 64, 8, 4, 64);
  forward.backward = false;
  EXPECT_EQ(EqualParts(forward, 0).count(), 1);
  LibraryProblem any_order = Problem(6, 64, 8, 4, 64);
  any_order.deterministic = false;
  EXPECT_EQ(EqualParts(any_order, 0).count(), 1);
}

// All equal parts are tried.
TEST(AttentionParts, AreTheLargestThatFit) {
  for (int64_t b : {1, 2, 5, 6}) {
    for (int64_t groups : {1, 3, 8}) {
      for (int64_t tokens : {7, 64, 100}) {
        LibraryProblem whole = Problem(b, tokens, 3 * groups, groups, 8);
        for (size_t most = 1; most < 2 * MostWorkspace(whole); most *= 2) {
          LibraryParts parts = EqualParts(whole, most);
          EXPECT_EQ(parts.count() * parts.part.b * parts.part.groups,
                    b * groups);
          EXPECT_TRUE(parts.part.b == 1 || parts.part.groups == groups);
          int64_t best = 1;
          for (int64_t n = 1; n <= b * groups; ++n) {
            bool equal = n < groups ? groups % n == 0
                                    : n % groups == 0 && b % (n / groups) == 0;
            LibraryParts other = {whole, whole};
            other.part.b = n < groups ? 1 : n / groups;
            other.part.groups = n < groups ? n : groups;
            other.part.heads = 3 * other.part.groups;
            if (equal && MostWorkspace(other) <= most) best = n;
          }
          EXPECT_EQ(parts.part.b * parts.part.groups, best)
              << b << " " << groups << " " << tokens << " " << most;
        }
      }
    }
  }
}

// Llama-3-8B's attention: one group of four heads needs 8.13 GiB.
TEST(AttentionParts, NeedLittleForLongSequences) {
  LibraryProblem whole = Problem(1, 32768, 32, 8, 128);
  EXPECT_EQ(MostWorkspace(whole) * 100 / kGibibyte, 6506u);
  LibraryParts parts = EqualParts(whole, ProviderOptions{}.attention_workspace);
  EXPECT_EQ(parts.count(), 8);
  EXPECT_EQ(MostWorkspace(parts) * 100 / kGibibyte, 813u);
  parts = EqualParts(Problem(4, 8192, 32, 8, 128),
                     ProviderOptions{}.attention_workspace);
  EXPECT_LE(MostWorkspace(parts), kGibibyte);
}

// An lse that does not begin at a multiple of 16 bytes is copied.
TEST(AttentionParts, CopyAnLseThatIsNotAligned) {
  LibraryProblem odd = Problem(2, 67, 2, 2, 8);
  EXPECT_EQ(EqualParts(odd, MostWorkspace(odd)).LseBytes(), 0u);
  EXPECT_EQ(EqualParts(odd, 0).LseBytes(), 512u);
  EXPECT_EQ(EqualParts(Problem(2, 68, 2, 2, 8), 0).LseBytes(), 0u);
}

// ---- results

struct BitsCase {
  AttentionCase attention;
  size_t workspace;
};

void PrintTo(const BitsCase& c, std::ostream* out) { *out << c.attention.name; }

std::vector<Tensor> ResultsOf(const AttentionCase& c, size_t workspace) {
  std::shared_ptr<Graph> graph = ParseGraph(BFloat16Text(c));
  StoreNarrow(*graph, CudaKernels());
  auto cuda = MakeCudaProvider({.attention_workspace = workspace});
  Executor executor(graph, *cuda);
  TensorMap feeds = RandomFeeds(*graph, {}), state;
  TensorMap got = executor.Run(feeds, state);
  cuda->Synchronize();
  std::vector<Tensor> results;
  for (const Value* output : graph->outputs) {
    results.push_back(cuda->ToHost(got.at(output->name)));
  }
  return results;
}

class CudaAttentionPartsTest : public testing::TestWithParam<BitsCase> {};

TEST_P(CudaAttentionPartsTest, GiveTheSameBits) {
  std::vector<Tensor> whole = ResultsOf(GetParam().attention, kGibibyte);
  std::vector<Tensor> parts =
      ResultsOf(GetParam().attention, GetParam().workspace);
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    ASSERT_EQ(parts[i].bytes(), whole[i].bytes());
    EXPECT_EQ(std::memcmp(parts[i].raw(), whole[i].raw(), whole[i].bytes()), 0)
        << "output " << i;
  }
}

// `noted`: the node's note bounds the workspace, not the provider's option.
size_t ArenaOf(const BitsCase& c, bool noted) {
  std::shared_ptr<Graph> graph = ParseGraph(BFloat16Text(c.attention));
  StoreNarrow(*graph, CudaKernels());
  if (noted) BoundWorkspaces(*graph, c.workspace);
  auto cuda = MakeCudaProvider(
      {.attention_workspace = noted ? kGibibyte : c.workspace});
  return Executor(graph, *cuda).plan().arena_bytes;
}

TEST_P(CudaAttentionPartsTest, AreAsSmallAsANoteSays) {
  EXPECT_EQ(ArenaOf(GetParam(), true), ArenaOf(GetParam(), false));
}

BitsCase Bits(const char* name, size_t workspace, int b, int t, int s,
              int heads, int groups, bool causal, const char* perm = nullptr) {
  return {{.name = name,
           .b = b,
           .t = t,
           .s = s,
           .heads = heads,
           .groups = groups,
           .d = 16,
           .e = 16,
           .attributes = causal ? "causal=1, scale=0.2, round_to=16"
                                : "causal=0, scale=0.2, round_to=16",
           .perm = perm},
          workspace};
}

// A head of up to 64 rows and 128 columns needs at most 36 KiB.
INSTANTIATE_TEST_SUITE_P(
    All, CudaAttentionPartsTest,
    testing::Values(Bits("Batches", 160 << 10, 4, 32, 32, 2, 2, false),
                    Bits("CausalBatches", 160 << 10, 4, 33, 33, 2, 2, true),
                    Bits("OneBatch", 80 << 10, 3, 33, 40, 2, 1, false),
                    Bits("TwoGroups", 160 << 10, 2, 20, 35, 8, 4, false),
                    Bits("OneGroup", 0, 2, 20, 35, 6, 2, true),
                    Bits("OneHead", 0, 2, 33, 20, 3, 3, false),
                    Bits("FewColumns", 0, 2, 40, 7, 2, 1, true),
                    Bits("FewRows", 0, 2, 7, 40, 2, 1, true),
                    Bits("Packed", 0, 2, 33, 33, 4, 2, true, "[0,1,2]"),
                    Bits("PackedTimeFirst", 0, 3, 33, 33, 2, 2, false,
                         "[1,0,2]")),
    [](const auto& info) { return info.param.attention.name; });

}  // namespace
}  // namespace onnx_fp8
