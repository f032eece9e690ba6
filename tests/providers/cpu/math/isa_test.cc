// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/isa.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "tests/providers/cpu/isas.h"

namespace onnx_fp8 {
namespace {

TEST(Isa, TheBestOneIsActiveUntilAnotherIsForced) {
  std::vector<Isa> isas = RunnableIsas();
  EXPECT_EQ(isas.front(), Isa::kPortable);
  EXPECT_EQ(ActiveIsa(), isas.back());
  EXPECT_FALSE(IsaIsForced());
  for (Isa isa : isas) {
    WithIsa with(isa);
    EXPECT_EQ(ActiveIsa(), isa);
    EXPECT_TRUE(IsaIsForced());
  }
  EXPECT_EQ(ActiveIsa(), isas.back());
  EXPECT_FALSE(IsaIsForced());
}

TEST(Isa, OthersAreRefused) {
  for (Isa isa : AllIsas()) {
    if (HasIsa(isa)) continue;
    EXPECT_THROW(ForceIsa(Name(isa)), Error) << Name(isa);
  }
  try {
    ForceIsa("sse9");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("(auto, portable"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("got 'sse9'"), std::string::npos);
  }
  EXPECT_FALSE(IsaIsForced());
}

}  // namespace
}  // namespace onnx_fp8
