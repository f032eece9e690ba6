// SPDX-License-Identifier: Apache-2.0
#include "collectives/mesh.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "tests/support/thread_ranks.h"

namespace onnx_fp8 {
namespace {

TEST(MeshText, IsRead) {
  EXPECT_EQ(ParseMesh("dp=4"), (Mesh{.dp = 4}));
  EXPECT_EQ(ParseMesh("tp=2,dp=3"), (Mesh{.dp = 3, .tp = 2}));
  EXPECT_EQ(ParseMesh("replicate=2,dp=3,tp=5"),
            (Mesh{.replicate = 2, .dp = 3, .tp = 5}));
  EXPECT_EQ(ToString(Mesh{.replicate = 2, .dp = 3, .tp = 5}),
            "replicate=2,dp=3,tp=5");
  EXPECT_EQ(ToString(Mesh{.tp = 2}), "tp=2");
  EXPECT_EQ(ToString(Mesh{}), "dp=1");
  EXPECT_EQ((Mesh{.replicate = 2, .dp = 3, .tp = 5}).data_ranks(), 6);
}

TEST(MeshText, IsRefused) {
  for (const char* text :
       {"", "dp", "dp=", "dp=0", "dp=-1", "dp=two", "dp=2,", ",dp=2",
        "dp=2,dp=2", "pp=2", "dp=2 tp=2", "dp=70000", "dp=65536,tp=65536",
        "dp=99999999999999999999"}) {
    try {
      ParseMesh(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(
          std::string(error.what()).find(Concat("ranks), got '", text, "'")),
          std::string::npos)
          << error.what();
    }
  }
}

// Each group adds up the numbers of its ranks in the world.
TEST(MeshRanks, GroupsOfEachAxis) {
  constexpr Mesh kMesh = {.replicate = 2, .dp = 3, .tp = 2};
  std::vector<std::vector<int64_t>> sums(12);
  RunRanks(12, [&](Communicator& world) {
    const MeshRanks ranks(kMesh, world);
    const int64_t rank = world.rank();
    EXPECT_EQ(ranks.data_rank(), rank / 2);
    EXPECT_EQ(ranks.tensor_rank(), rank % 2);
    for (const char* axis : {kReplicaRanks, kDataRanks, kTensorRanks}) {
      Communicator& group = *ranks.Group(axis);
      EXPECT_EQ(group.size(), kMesh.Size(axis));
      int64_t sum = rank;
      group.AllReduce(Reduction::kSum, DType::kInt64, &sum, &sum, 1);
      sums[static_cast<size_t>(rank)].push_back(sum);
    }
  });
  // Rank 7 is at (1, 0, 1): its groups are {1, 7}, {7, 9, 11} and {6, 7}.
  EXPECT_EQ(sums[7], (std::vector<int64_t>{8, 27, 13}));
  EXPECT_EQ(sums[0], (std::vector<int64_t>{6, 6, 1}));
}

TEST(MeshRanks, AnAxisThatIsTheWorld) {
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.tp = 2}, world);
    EXPECT_EQ(ranks.Group(kTensorRanks), &world);
    EXPECT_EQ(ranks.Group(kDataRanks), nullptr);
    EXPECT_EQ(ranks.groups().size(), 1u);
  });
}

// A group's bytes count as the world's.
TEST(MeshRanks, CountBytesOnce) {
  RunRanks(4, [&](Communicator& world) {
    const MeshRanks ranks({.dp = 2, .tp = 2}, world);
    const int64_t x = 0;
    int64_t y[2];
    ranks.Group(kTensorRanks)->AllGather(&x, y, sizeof x);
    ranks.Group(kDataRanks)->AllGather(&x, y, sizeof x);
    EXPECT_EQ(world.wire_bytes().all_gather, 16);
  });
}

TEST(MeshRanks, WorldsOfAnotherSize) {
  RunRanks(2, [&](Communicator& world) {
    EXPECT_THROW(MeshRanks({.dp = 3}, world), Error);
  });
}

}  // namespace
}  // namespace onnx_fp8
