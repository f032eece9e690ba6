// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/arena.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace onnx_fp8 {
namespace {

TEST(PlaceBuffers, ReusesHolesAndMergesThem) {
  std::vector<Buffer> buffers = {
      {0, 1, 64},   // 0
      {0, 2, 64},   // 64
      {0, 9, 1},    // 128, takes 64
      {3, 9, 128},  // the two first holes merged
      {4, 4, 65},   // 192, at the top
      {5, 9, 200},  // 192, the top hole made longer
      {5, 5, 0},    // nothing
  };
  EXPECT_EQ(PlaceBuffers(buffers), 448u);
  std::vector<size_t> offsets;
  for (const Buffer& buffer : buffers) offsets.push_back(buffer.offset);
  EXPECT_EQ(offsets, (std::vector<size_t>{0, 64, 128, 0, 192, 192, 0}));
  EXPECT_EQ(LiveBytes(buffers), 448u);
}

TEST(PlaceBuffers, TakesTheSmallestHoleThatFits) {
  std::vector<Buffer> buffers = {
      {0, 0, 256}, {0, 9, 64}, {0, 0, 128}, {0, 9, 64}, {1, 9, 128}};
  EXPECT_EQ(PlaceBuffers(buffers), 512u);
  EXPECT_EQ(buffers[4].offset, 320u);
}

TEST(PlaceBuffers, KeepsTheAlignmentOfADevice) {
  std::vector<Buffer> buffers = {{0, 1, 1}, {0, 1, 300}, {0, 0, 5}, {1, 1, 6}};
  EXPECT_EQ(PlaceBuffers(buffers, kDeviceAlignment), 1024u);
  std::vector<size_t> offsets;
  for (const Buffer& buffer : buffers) offsets.push_back(buffer.offset);
  EXPECT_EQ(offsets, (std::vector<size_t>{0, 256, 768, 768}));
  EXPECT_EQ(LiveBytes(buffers, kDeviceAlignment), 1024u);
}

// Layers keep some values for their backward and forget others; their sizes are
// a few, as in training steps.
TEST(PlaceBuffers, LosesLittleInATrainingStep) {
  constexpr int kLayers = 40, kNodes = 5;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    uint64_t count = 0;
    auto below = [&](uint64_t n) { return RandomBelow(seed, count++, n); };
    std::vector<Buffer> buffers;
    int step = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int i = 0; i < kNodes; ++i, ++step) {
        const size_t bytes = 1000 << below(4);
        const int backward = 3 * kLayers * kNodes - 2 * step;
        const int soon = step + 1 + static_cast<int>(below(3));
        buffers.push_back({step, below(2) ? backward : soon, bytes});
        buffers.push_back({backward - 1, backward + 1, bytes});
        buffers.push_back({backward - 1, backward - 1, 3 * bytes});
      }
    }
    const size_t total = PlaceBuffers(buffers);
    EXPECT_LE(100 * total, 101 * LiveBytes(buffers)) << seed;
  }
}

TEST(PlaceBuffers, NothingOverlapsAtAnyStep) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    uint64_t count = 0;
    auto below = [&](uint64_t n) { return RandomBelow(seed, count++, n); };
    std::vector<Buffer> buffers;
    for (int i = 0; i < 80; ++i) {
      int start = static_cast<int>(below(30)) - 1;
      int end = start + static_cast<int>(below(below(4) ? 3 : 30));
      buffers.push_back({start, end, below(500)});
    }
    size_t total = PlaceBuffers(buffers);
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Buffer& a = buffers[i];
      ASSERT_LE(a.offset + a.bytes, total);
      ASSERT_EQ(a.offset % 64, 0u);
      for (size_t k = 0; k < i; ++k) {
        const Buffer& b = buffers[k];
        bool together = a.start <= b.end && b.start <= a.end;
        bool overlap =
            a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        ASSERT_FALSE(together && overlap) << seed << ": " << i << " " << k;
      }
    }
    ASSERT_GE(total, LiveBytes(buffers));
    // Random lifetimes are harder to place than lifetimes in training graphs.
    ASSERT_LT(total, 2 * LiveBytes(buffers)) << seed;
  }
}

}  // namespace
}  // namespace onnx_fp8
