// SPDX-License-Identifier: Apache-2.0
#include "collectives/job_secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/temporary_folder.h"
#include "collectives/tcp.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

Launcher RankAt(int rank, const char* host = kLoopback) {
  return {"torchrun", 2, rank, MeetingPoint{.host = host, .port = 29500}};
}

std::string ErrorOf(const char* host, const SecretChoice& choice) {
  try {
    const JobSecret secret(RankAt(0, host), choice);
    return secret.Read().value();
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(JobSecretTest, RankZeroLeavesOneInTheFolder) {
  const TemporaryFolder folder;
  const std::string out = folder / "runs/one";
  const JobSecret other(RankAt(1, "node7"), {.folder = out});
  EXPECT_EQ(other.Read(), std::nullopt);
  std::string before;
  for (int start = 0; start < 2; ++start) {
    const JobSecret first(RankAt(0, "node7"), {.folder = out});
    const std::string secret = first.Read().value();
    EXPECT_EQ(secret.size(), 64u);
    EXPECT_EQ(other.Read(), secret);
    EXPECT_NE(secret, before);
    before = secret;
    struct stat facts;
    ASSERT_EQ(stat(other.file().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 07777, 0600u);
  }
  // Neither the file nor the folders stay.
  EXPECT_EQ(other.Read(), std::nullopt);
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

TEST(JobSecretTest, AFolderOfARunStays) {
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json") << "{}";
  // An earlier start was killed.
  std::ofstream(folder / "job_secret_29500") << "an old secret that all know";
  {
    const JobSecret first(RankAt(0), {.folder = folder.path()});
    EXPECT_NE(first.Read(), "an old secret that all know");
  }
  EXPECT_TRUE(fs::exists(folder / "config.json"));
  EXPECT_FALSE(fs::exists(folder / "job_secret_29500"));
}

TEST(JobSecretTest, OnlyPlainFilesAreRead) {
  const TemporaryFolder folder;
  const JobSecret other(RankAt(1), {.folder = folder.path()});
  std::ofstream(folder / "elsewhere") << "a secret of somebody";
  fs::create_symlink(folder / "elsewhere", other.file());
  EXPECT_EQ(other.Read(), std::nullopt);
  fs::remove(other.file());
  mkfifo(other.file().c_str(), 0600);
  EXPECT_EQ(other.Read(), std::nullopt);
}

TEST(JobSecretTest, ThePersonsOwnCountsFirst) {
  const TemporaryFolder folder;
  const JobSecret secret(RankAt(0), {.given = "a secret of the person",
                                     .folder = folder / "run",
                                     .insecure = true});
  EXPECT_EQ(secret.Read(), "a secret of the person");
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST(JobSecretTest, NoneIsForTheLoopbackOnly) {
  EXPECT_EQ(ErrorOf("127.0.0.1", {}), "");
  EXPECT_EQ(ErrorOf("localhost", {}), "");
  EXPECT_EQ(ErrorOf("192.0.2.1", {.insecure = true}), "");
  EXPECT_EQ(ErrorOf("192.0.2.1", {}),
            "[MASTER_ADDR] expected a secret of the ranks, as they meet on a "
            "network, at 192.0.2.1, got none: `head -c 32 /dev/urandom | "
            "base64` makes one, and each rank needs the same in its variable "
            "ONNX_FP8_JOB_SECRET; `insecure` trusts whoever reaches the port");
}

TEST(JobSecretTest, ShortOnes) {
  EXPECT_EQ(CheckedSecret("FILE", "sixteen letters!\n"), "sixteen letters!");
  for (const char* text : {"", " \n", "fifteen letters       \n"}) {
    EXPECT_THROW(CheckedSecret("FILE", text), Error);
  }
}

}  // namespace
}  // namespace onnx_fp8
