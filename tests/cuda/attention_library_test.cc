// SPDX-License-Identifier: Apache-2.0
//
// Which attention is the library's, and what is recorded.
#include <gtest/gtest.h>

#include "providers/cuda/cuda_provider.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

// Calls of the library in some runs of the graph.
struct LibraryCalls {
  int64_t forward, backward;
  bool operator==(const LibraryCalls&) const = default;
};

LibraryCalls CallsOf(const std::string& text, int runs = 1,
                     const ProviderOptions& options = {}) {
  std::shared_ptr<Graph> graph = ParseGraph(text);
  StoreNarrow(*graph, CudaKernels());
  auto cuda = MakeCudaProvider(options);
  Executor executor(graph, *cuda);
  TensorMap feeds = RandomFeeds(*graph, {}), state;
  const int reports = emulation::Reports();
  emulation::ResetCounts();
  for (int i = 0; i < runs; ++i) executor.Run(feeds, state);
  cuda->Synchronize();
  EXPECT_EQ(emulation::Reports(), reports) << emulation::LastReport();
  return {emulation::Calls("attentionForward"),
          emulation::Calls("attentionBackward")};
}

LibraryCalls CallsOf(const AttentionCase& c) {
  return CallsOf(BFloat16Text(c));
}

constexpr LibraryCalls kBoth = {1, 1}, kNone = {0, 0};

TEST(CudaAttentionLibrary, ComputesBFloat16) {
  EXPECT_EQ(CallsOf(SmallAttention()), kBoth);
}

TEST(CudaAttentionLibrary, ComputesPackedOperands) {
  for (const char* perm : {"[0,1,2]", "[1,0,2]"}) {
    AttentionCase c = SmallAttention();
    c.s = c.t;
    c.perm = perm;
    EXPECT_EQ(CallsOf(c), kBoth) << perm;
  }
}

TEST(CudaAttentionLibrary, ComputesNoFloats) {
  EXPECT_EQ(CallsOf(GraphText(SmallAttention()) + "output y\noutput dk\n"),
            kNone);
}

TEST(CudaAttentionLibrary, ComputesNoFloatProbabilities) {
  AttentionCase c = SmallAttention();
  c.attributes = "causal=1, scale=0.2";
  EXPECT_EQ(CallsOf(c), kNone);
}

TEST(CudaAttentionLibrary, ComputesMultiplesOf8UpTo128) {
  for (int d : {4, 12, 136}) {
    AttentionCase c = SmallAttention();
    c.d = c.e = d;
    EXPECT_EQ(CallsOf(c), kNone) << d;
  }
  AttentionCase c = SmallAttention();
  c.d = c.e = 128;
  EXPECT_EQ(CallsOf(c), kBoth);
}

TEST(CudaAttentionLibrary, ComputesKeysAndValuesOfOneWidth) {
  AttentionCase c = SmallAttention();
  c.e = 16;
  EXPECT_EQ(CallsOf(c), kNone);
}

TEST(CudaAttentionLibrary, ComputesNoEmptyAttention) {
  AttentionCase c = SmallAttention();
  c.s = 0;
  EXPECT_EQ(CallsOf(c), kNone);
}

// The library has no backward pass of one row and one column.
TEST(CudaAttentionLibrary, ComputesOnePassOfTwo) {
  AttentionCase c = SmallAttention();
  c.t = c.s = 1;
  EXPECT_EQ(CallsOf(c), (LibraryCalls{1, 0}));
}

// Three batches of two groups.
TEST(CudaAttentionLibrary, DividesDeterministicGradients) {
  AttentionCase c = SmallAttention();
  c.b = 3;
  c.heads = 4;
  c.groups = 2;
  const std::string text = BFloat16Text(c);
  EXPECT_EQ(CallsOf(text, 1, {.attention_workspace = 1}), (LibraryCalls{1, 6}));
  EXPECT_EQ(CallsOf(text, 4, {.attention_workspace = 1}),
            (LibraryCalls{2, 12}));
  EXPECT_EQ(
      CallsOf(text, 1, {.nondeterministic = true, .attention_workspace = 1}),
      kBoth);
}

TEST(CudaAttentionLibrary, HasAName) {
  const std::string products = MakeCudaProvider()->Describe().gemm;
  EXPECT_NE(
      products.find(", attention and convolutions by an emulated library, "),
      std::string::npos)
      << products;
}

// The third run repeats the second one.
TEST(CudaAttentionLibrary, IsRecorded) {
  EXPECT_EQ(CallsOf(BFloat16Text(SmallAttention()), 4), (LibraryCalls{2, 2}));
}

}  // namespace
}  // namespace onnx_fp8
