// SPDX-License-Identifier: Apache-2.0
#include "collectives/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// "NAME RANK/SIZE", "none" or an error.
std::string Found(const std::map<std::string, std::string>& variables) {
  try {
    const std::optional<Launcher> found =
        FindLauncher([&](const char* name) -> const char* {
          const auto it = variables.find(name);
          return it == variables.end() ? nullptr : it->second.c_str();
        });
    return found ? Concat(found->name, " ", found->rank, "/", found->size)
                 : "none";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(LauncherTest, Variables) {
  EXPECT_EQ(Found({}), "none");
  EXPECT_EQ(Found({{"PMI_SIZE", "4"}}), "none");
  EXPECT_EQ(Found({{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}}),
            "MPICH or Slurm 3/4");
  EXPECT_EQ(Found({{"OMPI_COMM_WORLD_SIZE", "2"},
                   {"OMPI_COMM_WORLD_RANK", "0"},
                   {"PMI_SIZE", "1"},
                   {"PMI_RANK", "0"}}),
            "Open MPI 0/2");
  EXPECT_EQ(Found({{"PMI_SIZE", "two"}, {"PMI_RANK", "0"}}),
            "[PMI_SIZE] expected a number, got 'two'");
  EXPECT_EQ(Found({{"PMI_SIZE", "2"}, {"PMI_RANK", "-1"}}),
            "[PMI_RANK] expected a number, got '-1'");
}

}  // namespace
}  // namespace onnx_fp8
