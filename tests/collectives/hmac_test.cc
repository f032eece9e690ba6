// SPDX-License-Identifier: Apache-2.0
#include "collectives/hmac.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace onnx_fp8 {
namespace {

std::string InHex(const Code& code) {
  std::string text;
  for (const unsigned char byte : code) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

// Test cases 1, 2 and 6 of RFC 4231.
TEST(HmacTest, CasesOfTheStandard) {
  EXPECT_EQ(InHex(Hmac(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b"
            "881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(InHex(Hmac("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c7"
            "5a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(InHex(Hmac(std::string(131, '\xaa'),
                       "Test Using Larger Than Block-Size Key - Hash Key "
                       "First")),
            "60e431591ee0b67f0d8a26aacbf5b77f"
            "8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacTest, AnyKeyAndText) {
  EXPECT_EQ(InHex(Hmac("", "")),
            "b613679a0814d9ec772f95d778c35fc5"
            "ff1697c493715653c6c712144292c5ad");
  EXPECT_NE(Hmac("a", "b"), Hmac("a", std::string("b\0", 2)));
}

TEST(HmacTest, SameCode) {
  const Code code = Hmac("a", "b");
  for (size_t i = 0; i < code.size(); ++i) {
    Code other = code;
    EXPECT_TRUE(SameCode(code, other));
    other[i] ^= 1;
    EXPECT_FALSE(SameCode(code, other));
  }
  EXPECT_NE(RandomCode(), RandomCode());
}

}  // namespace
}  // namespace onnx_fp8
