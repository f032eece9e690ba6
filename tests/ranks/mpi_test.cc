// SPDX-License-Identifier: Apache-2.0
//
// mpirun runs this program on several ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "collectives/agreement.h"
#include "collectives/load_mpi.h"
#include "tests/support/collective_cases.h"

namespace onnx_fp8 {
namespace {

// MPI starts once in a process. Short messages cut the longer data.
Communicator& Ranks() {
  static const std::unique_ptr<Communicator> ranks = [] {
    const std::optional<Launcher> launcher = FindLauncher(std::getenv);
    return LoadMpi(launcher ? launcher->size : 1, launcher, MpiFolders(), 1000);
  }();
  return *ranks;
}

TEST(MpiTest, SeesAllRanks) {
  const std::optional<Launcher> launcher = FindLauncher(std::getenv);
  ASSERT_TRUE(launcher.has_value()) << "mpirun runs this test";
  EXPECT_EQ(Ranks().size(), launcher->size);
  EXPECT_EQ(Ranks().rank(), launcher->rank);
  EXPECT_GE(Ranks().size(), 2);
}

TEST(MpiTest, AllReduce) { ExpectAllReduce(Ranks()); }
TEST(MpiTest, AllGather) { ExpectAllGather(Ranks()); }
TEST(MpiTest, ReduceScatter) { ExpectReduceScatter(Ranks()); }
TEST(MpiTest, Broadcast) { ExpectBroadcast(Ranks()); }

TEST(MpiTest, Disagreement) {
  try {
    CheckAgreement(Ranks(), "order", {Ranks().rank() == 1 ? "a" : "b"});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[order] expected b, as rank 0, got a on rank 1");
  }
}

}  // namespace
}  // namespace onnx_fp8
