// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/sizes.h"

#include <gtest/gtest.h>

#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

TEST(SizesTest, GridsHaveNFastest) {
  EXPECT_EQ(ParseSizes("sizes", {"8", "4", "8"}), (std::vector<int64_t>{4, 8}));
  std::string text;
  for (const ProductSize& size : GridOf({4, 8})) text += SizeText(size) + "; ";
  EXPECT_EQ(text,
            "M 4, K 4, N 4; M 4, K 4, N 8; M 4, K 8, N 4; M 4, K 8, N 8; "
            "M 8, K 4, N 4; M 8, K 4, N 8; M 8, K 8, N 4; M 8, K 8, N 8; ");
}

TEST(SizesTest, RefusesOtherWords) {
  for (const char* word : {"0", "-1", "x", "8x", "16385"}) {
    EXPECT_THROW(ParseSizes("sizes", {word}), OptionError) << word;
  }
  EXPECT_THROW(ParseSizes("sizes", {}), OptionError);
  EXPECT_EQ(ParseSizes("sizes", {"16385"}, 20000)[0], 16385);
}

TEST(SizesTest, ProductsAndWhatFollows) {
  auto read = ReadProductSize("8,16,24,NT");
  ASSERT_TRUE(read);
  EXPECT_EQ(SizeText(read->first), "M 8, K 16, N 24");
  EXPECT_EQ(read->first.operations(), 2 * 8 * 16 * 24);
  EXPECT_EQ(read->second, ",NT");
  for (const char* text :
       {"", "8", "8,16", "8,16,", "8;16,24", "8,0,24", "8,16,1048577"}) {
    EXPECT_FALSE(ReadProductSize(text)) << text;
  }
}

}  // namespace
}  // namespace onnx_fp8
