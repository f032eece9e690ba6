// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/speed_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

TEST(SpeedGrid, CellsAndBetween) {
  SpeedGrid grid = {{64, 256}, {1, 4, 16}, {8}, {1, 2, 4, 3, 6, 12}};
  EXPECT_EQ(grid.At(64, 1, 8), 1);
  EXPECT_EQ(grid.At(256, 16, 8), 12);
  EXPECT_EQ(grid.At(64, 4, 8), 2);
  // Half-way in logarithms, along each axis and both.
  EXPECT_EQ(grid.At(128, 1, 8), 2);
  EXPECT_EQ(grid.At(64, 8, 8), 3);
  EXPECT_EQ(grid.At(128, 8, 8), (2 + 4 + 6 + 12) / 4.0);
  // Outside: as at the edge.
  EXPECT_EQ(grid.At(1, 1, 1), 1);
  EXPECT_EQ(grid.At(1 << 20, 1 << 20, 1 << 20), 12);
  EXPECT_EQ(grid.At(128, 1 << 20, 3), 8);
}

TEST(SpeedTable, H100IsTorchaosTable) {
  SpeedTable table = LoadSpeedTable("h100");
  EXPECT_FALSE(table.measured());
  EXPECT_TRUE(table.of_layers());
  const SpeedGrid& grid = table.speedup;
  std::vector<int64_t> sizes = {1024, 2048, 4096, 8192, 16384, 32768};
  EXPECT_EQ(grid.m, sizes);
  EXPECT_EQ(grid.k, sizes);
  EXPECT_EQ(grid.n, sizes);
  ASSERT_EQ(grid.values.size(), 216u);
  EXPECT_EQ(grid.At(1024, 1024, 1024), 0.42);
  EXPECT_EQ(grid.At(2048, 16384, 2048), 0.62);
  EXPECT_EQ(grid.At(8192, 4096, 4096), 1.00);
  EXPECT_EQ(grid.At(16384, 32768, 32768), 1.72);
  EXPECT_EQ(grid.At(32768, 16384, 32768), 1.73);
  EXPECT_EQ(grid.At(32768, 32768, 32768), 1.52);
}

TEST(SpeedTable, FilesAreReadAsTheyAreWritten) {
  SpeedTable table;
  table.fp32 = {{8, 64}, {8}, {16}, {2e9, 4.5e9}};
  table.fp8 = {{8, 64}, {8}, {16}, {1e9, 1.25e10}};
  table.quantize = 5e8;
  TempDir dir;
  WriteText(dir / "s.json", SpeedTableJson(table, {.machine = "here"}));
  SpeedTable read = LoadSpeedTable(dir / "s.json");
  EXPECT_TRUE(read.measured());
  EXPECT_FALSE(read.of_layers());
  EXPECT_EQ(read.source, dir / "s.json");
  EXPECT_EQ(read.fp32.m, table.fp32.m);
  EXPECT_EQ(read.fp8.n, table.fp8.n);
  EXPECT_EQ(read.fp32.values, table.fp32.values);
  EXPECT_EQ(read.fp8.values, table.fp8.values);
  EXPECT_EQ(read.quantize, 5e8);
}

TEST(SpeedTable, FilesOfLayersAreReadAsTheyAreWritten) {
  SpeedTable table;
  table.speedup = {{8}, {16, 64}, {32}, {0.5, 1.25}};
  std::string text = SpeedTableJson(
      table, {.machine = "here", .benchmark = "linear", .recipe = "mxfp8"});
  EXPECT_EQ(text,
            R"({"format":"onnx_fp8 layer speedups 1","machine":"here",)"
            R"("benchmark":"linear","recipe":"mxfp8","m":[8],"k":[16,64],)"
            R"("n":[32],"speedup":[0.5,1.25]})"
            "\n");
  TempDir dir;
  WriteText(dir / "s.json", text);
  SpeedTable read = LoadSpeedTable(dir / "s.json");
  EXPECT_TRUE(read.measured());
  EXPECT_TRUE(read.of_layers());
  EXPECT_EQ(read.speedup.m, table.speedup.m);
  EXPECT_EQ(read.speedup.k, table.speedup.k);
  EXPECT_EQ(read.speedup.n, table.speedup.n);
  EXPECT_EQ(read.speedup.values, table.speedup.values);
}

// The error of LoadSpeedTable for `text` as a file, without its beginning; ""
// for a file that it reads.
std::string Refusal(const std::string& text) {
  TempDir dir;
  const std::string path = dir / "s.json";
  WriteText(path, text);
  std::string error = ErrorOf([&] { LoadSpeedTable(path); });
  const std::string what = "[" + path + "] expected what `bench()` saves";
  EXPECT_TRUE(error.empty() || error.starts_with(what)) << error;
  return error.substr(std::min(error.size(), what.size()));
}

// The same with the first `from` of the text replaced.
std::string RefusalOf(std::string text, const std::string& from,
                      const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return Refusal(text);
}

constexpr char kOtherFormat[] =
    ": expected the format \"onnx_fp8 gemm speeds 1\" or \"onnx_fp8 layer "
    "speedups 1\"";

TEST(SpeedTable, RefusesOtherFilesOfLayers) {
  const std::string good =
      R"({"format":"onnx_fp8 layer speedups 1","m":[8,64],"k":[8],"n":[8],)"
      R"("speedup":[0.5,2]})";
  EXPECT_EQ(Refusal(good), "");
  EXPECT_EQ(RefusalOf(good, "speedups 1", "speedups 2"), kOtherFormat);
  EXPECT_EQ(RefusalOf(good, "[8,64]", "[64,8]"),
            ": expected sizes that ascend from at least 1");
  EXPECT_EQ(RefusalOf(good, "[0.5,2]", "[0.5]"),
            ": expected 2 speed-ups, got 1");
  EXPECT_EQ(RefusalOf(good, "0.5", "-0.5"),
            ": expected speed-ups above 0, got -0.5");
  EXPECT_EQ(RefusalOf(good, "[0.5,2]", "{}"), ", got something else");
  EXPECT_EQ(RefusalOf(good, "\"speedup\"", "\"gflops\""),
            ", got something else");
  // The figures of one format under the name of the other.
  EXPECT_EQ(RefusalOf(good, "layer speedups", "gemm speeds"),
            ", got something else");
}

TEST(SpeedTable, RefusesOtherFiles) {
  const std::string good =
      R"({"format":"onnx_fp8 gemm speeds 1","m":[8,64],"k":[8],"n":[8],)"
      R"("gflops":{"fp32":[1,2],"fp8":[1,2]},"quantize_gigaelements":1})";
  EXPECT_EQ(Refusal(good), "");
  EXPECT_EQ(Refusal("speeds"), ", got something else");
  EXPECT_EQ(Refusal("{}"), ", got something else");
  EXPECT_EQ(RefusalOf(good, "speeds 1", "speeds 2"), kOtherFormat);
  for (const char* sizes : {"[64,8]", "[8,8]", "[]", "[0,8]"}) {
    EXPECT_EQ(RefusalOf(good, "[8,64]", sizes),
              ": expected sizes that ascend from at least 1");
  }
  EXPECT_EQ(RefusalOf(good, "[1,2]", "[1]"),
            ": expected 2 speeds of fp32, got 1");
  EXPECT_EQ(RefusalOf(good, "\"fp8\":[1,2]", "\"fp8\":[1,0]"),
            ": expected speeds of fp8 above 0, got 0");
  EXPECT_EQ(RefusalOf(good, "elements\":1", "elements\":0"),
            ": expected a speed of quantizing above 0");
  EXPECT_EQ(RefusalOf(good, "[8,64]", "\"x\""), ", got something else");
  TempDir dir;
  EXPECT_NE(ErrorOf([&] { LoadSpeedTable(dir / "none"); }), "");
}

}  // namespace
}  // namespace onnx_fp8
