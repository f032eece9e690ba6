// SPDX-License-Identifier: Apache-2.0
#include "tests/support/corpus.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

TEST(CorpusFiles, OneThatIsNotThereIsSaidToBe) {
  TempDir dir;
  std::vector<CorpusFile> none = FilesIn(dir / "nowhere", false);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(WhatIsMissing("X", none),
            "62 of the 62 files of the corpus at X, the first of which is "
            "act_zoo/d18");
  std::filesystem::create_directories(dir / "act_zoo");
  WriteText(dir / "act_zoo/d18.onnx", "");
  // A file without PyTorch's results is no case.
  EXPECT_TRUE(FilesIn(dir.path(), false).empty());
  WriteText(dir / "act_zoo/reference.json", "{}");
  WriteText(dir / "act_zoo/new.onnx", "");
  std::vector<CorpusFile> two = FilesIn(dir.path(), false);
  ASSERT_EQ(two.size(), 2);
  EXPECT_EQ(two[0].model(), dir / "act_zoo/d18.onnx");
  EXPECT_EQ(WhatIsMissing("X", two),
            "61 of the 62 files of the corpus at X, the first of which is "
            "act_zoo/l17");
}

}  // namespace
}  // namespace onnx_fp8
