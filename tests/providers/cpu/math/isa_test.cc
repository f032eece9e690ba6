// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
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

#if defined(__x86_64__)
// Linux lists what the CPU has and what Linux saves.
TEST(Isa, LinuxListsTheSame) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (line.rfind("flags", 0) != 0 && std::getline(file, line)) continue;
  line += " ";
  auto has = [&](std::initializer_list<const char*> flags) {
    return std::ranges::all_of(flags, [&](const char* flag) {
      return line.find(" " + std::string(flag) + " ") != std::string::npos;
    });
  };
  ASSERT_TRUE(has({"sse2"})) << line;
  bool avx2 = has({"avx2", "fma", "f16c"});
  bool avx512 = avx2 && has({"avx512f", "avx512bw", "avx512vl", "avx512dq",
                             "avx512vbmi"});
  bool bf16 = avx512 && has({"avx512_bf16"});
  EXPECT_EQ(HasIsa(Isa::kAvx2), avx2);
  EXPECT_EQ(HasIsa(Isa::kAvx512), avx512);
  EXPECT_EQ(HasIsa(Isa::kAvx512Bf16), bf16);
  EXPECT_LE(HasIsa(Isa::kAmx), bf16 && has({"amx_bf16", "amx_tile"}));
}
#endif

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
