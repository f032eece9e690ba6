// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "collectives/one_rank.h"
#include "tests/support/collective_cases.h"
#include "tests/support/thread_ranks.h"

namespace onnx_fp8 {
namespace {

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CommunicatorTest, OneRankCopies) {
  // 200 bytes: longer data takes several messages.
  for (size_t message_bytes : {Communicator::kMessageBytes, size_t{200}}) {
    OneRank rank(message_bytes);
    ExpectAllReduce(rank);
    ExpectAllGather(rank);
    ExpectReduceScatter(rank);
    ExpectBroadcast(rank);
    EXPECT_EQ(rank.wire_bytes(), WireBytes());
  }
}

TEST(CommunicatorTest, ManyRanks) {
  for (int size : {2, 3, 5}) {
    for (size_t message_bytes : {Communicator::kMessageBytes, size_t{200}}) {
      RunRanks(
          size,
          [](Communicator& ranks) {
            ExpectAllReduce(ranks);
            ExpectAllGather(ranks);
            ExpectReduceScatter(ranks);
            ExpectBroadcast(ranks);
          },
          message_bytes);
    }
    RunRanks(size, ExpectWireBytes);
  }
}

TEST(CommunicatorTest, DTypes) {
  OneRank rank;
  uint8_t x = 0, y = 0;
  EXPECT_EQ(ErrorOf([&] {
              rank.AllReduce(Reduction::kSum, DType::kE4M3, &x, &y, 1);
            }),
            "[AllReduce] expected float, double, int32 or int64, got "
            "float8e4m3fn");
  EXPECT_EQ(
      ErrorOf([&] { rank.ReduceScatter(DType::kBFloat16, &x, &y, 0); }),
      "[ReduceScatter] expected float, double, int32 or int64, got bfloat16");
}

TEST(CommunicatorTest, AnErrorEndsAllRanks) {
  EXPECT_EQ(ErrorOf([] {
              RunRanks(3, [](Communicator& ranks) {
                Check(ranks.rank() != 1, "disk full");
                ranks.Barrier();
              });
            }),
            "disk full");
  // Ranks that disagree do not hang.
  EXPECT_EQ(ErrorOf([] {
              RunRanks(2, [](Communicator& ranks) {
                float x[4] = {}, y[8];
                if (ranks.rank() == 0) ranks.AllGather(x, y, 8);
                if (ranks.rank() == 1) ranks.AllGather(x, y, 12);
              });
            }),
            "[ranks] rank 0 calls Gather of 8, rank 1 calls Gather of 12");
  EXPECT_EQ(ErrorOf([] {
              RunRanks(2, [](Communicator& ranks) {
                if (ranks.rank() == 0) ranks.Barrier();
              });
            }),
            "[ranks] rank 0 calls Barrier, rank 1 calls nothing more");
}

}  // namespace
}  // namespace onnx_fp8
