// SPDX-License-Identifier: Apache-2.0
#include "collectives/load_mpi.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/check.h"
#include "base/temporary_folder.h"

namespace onnx_fp8 {
namespace {

std::string LoadError(const std::vector<std::string>& folders) {
  try {
    LoadMpi(1, std::nullopt, folders);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LoadMpiTest, NoModule) {
  EXPECT_EQ(LoadError({"/no/a", "/no/b"}),
            "[MPI] expected libonnx_fp8_mpi.so in /no/a or /no/b, got none: a "
            "build makes it if it finds MPI (Debian's libmpich-dev)");
}

TEST(LoadMpiTest, AFileThatIsNoModule) {
  const TemporaryFolder folder;
  const std::string path = folder / "libonnx_fp8_mpi.so";
  std::ofstream(path) << "no library";
  const std::string error = LoadError({"/no", folder.path()});
  EXPECT_TRUE(error.starts_with("[MPI] cannot open " + path + ": ")) << error;
}

TEST(LoadModuleTest, FoldersOfThisProgram) {
  const std::vector<std::string> folders = ModuleFolders();
  ASSERT_EQ(folders.size(), 2u);
  EXPECT_TRUE(std::ifstream(folders[0] + "/test_collectives").good());
}

}  // namespace
}  // namespace onnx_fp8
