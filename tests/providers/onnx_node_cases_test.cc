// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/onnx_node_cases.h"

#include <gtest/gtest.h>

#include <iostream>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// Fewer cases would mean that kernels or cases got lost.
constexpr size_t kFewestCases = 1440;

const OnnxCases& Cases() {
  static const OnnxCases cases = [] {
    try {
      return FindNodeCases();
    } catch (const Error& error) {
      OnnxCases none;
      none.unreadable.push_back(error.what());
      return none;
    }
  }();
  return cases;
}

class OnnxNodeCase : public testing::TestWithParam<OnnxCase> {};

TEST_P(OnnxNodeCase, Agrees) { EXPECT_EQ(RunNodeCase(GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(Cpu, OnnxNodeCase, testing::ValuesIn(Cases().runnable),
                         [](const auto& info) { return info.param.name; });

TEST(OnnxNodeCases, AreReadAndMostlyRun) {
  const OnnxCases& cases = Cases();
  std::cout << cases.runnable.size()
            << " cases run; left out: " << cases.without_kernel.size()
            << " with ops without kernel, " << cases.without_type.size()
            << " with types that we do not have, " << cases.excluded.size()
            << " by name\n";
  EXPECT_GE(cases.runnable.size(), kFewestCases);
  EXPECT_EQ(cases.unreadable, std::vector<std::string>());
}

}  // namespace
}  // namespace onnx_fp8
