// SPDX-License-Identifier: Apache-2.0
//
// Algorithms of products that outlive the process that chose them.
#include "providers/cuda/gemm/algorithm_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/temporary_folder.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/run/executor.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/user_cache.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8::cuda {
namespace {

cublasLtMatmulAlgo_t Algorithm(uint64_t first) {
  cublasLtMatmulAlgo_t algorithm = {};
  algorithm.data[0] = first;
  algorithm.data[7] = ~first;
  return algorithm;
}

bool Same(const std::optional<cublasLtMatmulAlgo_t>& a,
          const cublasLtMatmulAlgo_t& b) {
  return a && std::memcmp(&*a, &b, sizeof b) == 0;
}

std::string OnlyFile(const std::string& folder) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(found, "");
    found = entry.path();
  }
  return found;
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(AlgorithmFile, KeepsThemForTheSameWriter) {
  TemporaryFolder dir;
  std::string folder = dir / "made" + "/later";
  { AlgorithmFile(folder, "1.0, GPU").Set("m 16", Algorithm(7)); }
  EXPECT_TRUE(
      Same(AlgorithmFile(folder, "1.0, GPU").Find("m 16"), Algorithm(7)));
  EXPECT_FALSE(AlgorithmFile(folder, "1.0, GPU").Find("m 1"));
  EXPECT_FALSE(AlgorithmFile(folder, "1.1, GPU").Find("m 16"));
}

TEST(AlgorithmFile, KeepsThoseOfSeveralProcesses) {
  TemporaryFolder dir;
  {
    AlgorithmFile one(dir.path(), "w"), other(dir.path(), "w");
    one.Set("a", Algorithm(1));
    other.Set("b", Algorithm(2));
  }
  AlgorithmFile both(dir.path(), "w");
  EXPECT_TRUE(Same(both.Find("a"), Algorithm(1)));
  EXPECT_TRUE(Same(both.Find("b"), Algorithm(2)));
}

// A file that is cut off anywhere, or has any byte changed, gives whole
// algorithms or none.
TEST(AlgorithmFile, IgnoresWhatIsBroken) {
  TemporaryFolder dir;
  {
    AlgorithmFile file(dir.path(), "w");
    file.Set("a", Algorithm(1));
    file.Set("b", Algorithm(2));
  }
  std::string path = OnlyFile(dir.path()), text = TextOf(path);
  auto expect_whole = [&](const std::string& broken) {
    std::ofstream(path) << broken;
    AlgorithmFile file(dir.path(), "w");
    for (const auto& [product, first] : {std::pair{"a", 1}, {"b", 2}}) {
      auto found = file.Find(product);
      EXPECT_TRUE(!found || Same(found, Algorithm(first))) << broken;
    }
  };
  for (size_t i = 0; i < text.size(); i += 3) {
    expect_whole(text.substr(0, i));
    std::string changed = text;
    changed[i] ^= 1;
    expect_whole(changed);
  }
  for (std::string garbage : {"", "\n", "\n\n\n", "x"}) expect_whole(garbage);
  std::ofstream(path) << std::string(100000, '\0');
  { AlgorithmFile(dir.path(), "w").Set("a", Algorithm(3)); }
  EXPECT_TRUE(Same(AlgorithmFile(dir.path(), "w").Find("a"), Algorithm(3)));
}

TEST(AlgorithmFile, WorksWithoutAFolder) {
  TemporaryFolder dir;
  std::ofstream(dir / "file") << "no folder";
  for (const std::string& folder : {std::string(), dir / "file"}) {
    AlgorithmFile file(folder, "w");
    file.Set("a", Algorithm(1));
    EXPECT_FALSE(file.Find("a"));
  }
  EXPECT_EQ(TextOf(dir / "file"), "no folder");
}

class CachedAlgorithms : public testing::Test {
 protected:
  ~CachedAlgorithms() override { emulation::SetCublasLtVersion(version_); }

  // How often a provider asks for an algorithm while it multiplies.
  static int64_t Asks() {
    std::shared_ptr<Graph> graph = ParseGraph(
        "input a: float[5,3]\ninput b: float[3,4]\ny: float[5,4] = Gemm(a, b)\n"
        "z: float[4,4] = Gemm<transA=1>(y, y)\noutput z\n");
    emulation::ResetCounts();
    auto cuda = MakeCudaProvider();
    Executor executor(graph, *cuda);
    TensorMap state;
    executor.Run(RandomFeeds(*graph, {}), state);
    cuda->Synchronize();
    return emulation::Calls("cublasLtMatmulAlgoGetHeuristic");
  }

  UserCache cache_;
  size_t version_ = emulation::CublasLtVersion();
};

TEST_F(CachedAlgorithms, AreNotAskedForAgain) {
  EXPECT_EQ(Asks(), 2);
  EXPECT_EQ(Asks(), 0);
}

TEST_F(CachedAlgorithms, BelongToAVersion) {
  EXPECT_EQ(Asks(), 2);
  emulation::SetCublasLtVersion(version_ + 1);
  EXPECT_EQ(Asks(), 2);
  emulation::SetCublasLtVersion(version_);
  EXPECT_EQ(Asks(), 0);
}

// Lines of a file that are whole, but of no algorithm that cuBLASLt takes.
TEST_F(CachedAlgorithms, AreCheckedBeforeTheyAreUsed) {
  EXPECT_EQ(Asks(), 2);
  std::string path = OnlyFile(CacheFolder()), text = TextOf(path);
  std::string writer = text.substr(0, text.find('\n'));
  writer = writer.substr(std::string("Algorithms of ").size());
  {
    AlgorithmFile file(CacheFolder(), writer);
    for (size_t at = text.find('\n') + 1; at < text.size();) {
      size_t end = text.find('\n', at);
      std::string line = text.substr(at, end - at);
      file.Set(line.substr(9 + 128 + 1), Algorithm(5));
      at = end + 1;
    }
  }
  EXPECT_EQ(Asks(), 2);
  EXPECT_EQ(Asks(), 0);
}

}  // namespace
}  // namespace onnx_fp8::cuda
