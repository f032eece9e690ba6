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
    if (!found) return "none";
    std::string text = Concat(found->name, " ", found->rank, "/", found->size);
    if (const auto& meeting = found->meeting) {
      text += Concat(" at ", meeting->host, ":", meeting->port,
                     meeting->port_is_taken ? ", taken" : "");
    }
    return text;
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
  EXPECT_EQ(Found({{"PMI_SIZE", "2"}, {"PMI_RANK", "2"}}),
            "[PMI_RANK] expected a number below PMI_SIZE, 2, got 2");
}

using Variables = std::map<std::string, std::string>;

TEST(LauncherTest, VariablesOfTorchrun) {
  const Variables variables = {{"WORLD_SIZE", "4"},
                               {"RANK", "3"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29500"}};
  const auto with = [&](const std::string& name, const std::string& value) {
    Variables changed = variables;
    changed[name] = value;
    return changed;
  };
  const auto without = [&](const std::string& name) {
    Variables changed = variables;
    changed.erase(name);
    return changed;
  };
  EXPECT_EQ(Found(variables), "torchrun 3/4 at node0:29500");
  EXPECT_EQ(Found(with("TORCHELASTIC_USE_AGENT_STORE", "True")),
            "torchrun 3/4 at node0:29500, taken");
  EXPECT_EQ(Found(with("TORCHELASTIC_USE_AGENT_STORE", "False")),
            "torchrun 3/4 at node0:29500");
  EXPECT_EQ(Found(with("LOCAL_WORLD_SIZE", "2")),
            "torchrun 3/4 at node0:29500");
  EXPECT_EQ(Found(with("LOCAL_WORLD_SIZE", "4")),
            "torchrun 3/4 at 127.0.0.1:29500");
  EXPECT_EQ(Found(without("RANK")), "none");
  EXPECT_EQ(Found({{"WORLD_SIZE", "1"}, {"RANK", "0"}}), "torchrun 0/1");
  EXPECT_EQ(Found(without("MASTER_ADDR")),
            "[MASTER_ADDR] expected where rank 0 listens, as WORLD_SIZE is 4, "
            "got nothing");
  EXPECT_EQ(Found(with("MASTER_PORT", "65536")),
            "[MASTER_PORT] expected a port in 1…65535, got 65536");
  EXPECT_EQ(Found(with("RANK", "4")),
            "[RANK] expected a number below WORLD_SIZE, 4, got 4");
}

// The innermost of two launchers counts.
TEST(LauncherTest, TorchrunBesideOthers) {
  Variables variables = {{"WORLD_SIZE", "4"},      {"RANK", "3"},
                         {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"},
                         {"PMI_SIZE", "2"},        {"PMI_RANK", "1"}};
  EXPECT_EQ(Found(variables), "MPICH or Slurm 1/2");
  variables["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(Found(variables), "torchrun 3/4 at node0:29500");
}

}  // namespace
}  // namespace onnx_fp8
