// SPDX-License-Identifier: Apache-2.0
//
// This program without mpirun: MPI sees one rank.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "collectives/load_mpi.h"

namespace onnx_fp8 {
namespace {

// MPI starts once in a process, so a child process does it.
[[noreturn]] void Load(int ranks, const std::optional<Launcher>& launcher) {
  try {
    const auto communicator = LoadMpi(ranks, launcher);
    std::fprintf(stderr, "rank %d of %d", communicator->rank(),
                 communicator->size());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s", error.what());
    std::_Exit(1);
  }
  std::_Exit(0);
}

TEST(WorldTest, OneRank) {
  EXPECT_EXIT(Load(1, std::nullopt), testing::ExitedWithCode(0),
              "^rank 0 of 1$");
}

TEST(WorldTest, AnotherSizeThanTheMesh) {
  EXPECT_EXIT(
      Load(4, std::nullopt), testing::ExitedWithCode(1),
      "^\\[MPI\\] expected 4 ranks, the product of the mesh, got 1 from "
      ".+: launch with mpirun -n 4$");
}

// Each of its two processes would train alone.
TEST(WorldTest, LaunchedByAnotherMpi) {
  EXPECT_EXIT(Load(2, Launcher{"Open MPI", 2, 1}), testing::ExitedWithCode(1),
              "^\\[MPI\\] expected rank 1 of 2, as Open MPI has launched, got "
              "rank 0 of 1 from .+: launch with its own mpirun$");
}

}  // namespace
}  // namespace onnx_fp8
