// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using GridSample = testing::TestWithParam<GradientCase>;

TEST_P(GridSample, RuleIsTheDerivative) { CheckGradient(GetParam()); }

Attributes Options(const std::string& mode, const std::string& padding,
                   int64_t align_corners) {
  return {{"mode", mode},
          {"padding_mode", padding},
          {"align_corners", align_corners}};
}

// Places inside x, beside it and far from it.
std::vector<GradientCase> GridSampleCases() {
  std::vector<GradientCase> cases;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (int64_t corners : {0, 1}) {
        cases.push_back(
            {std::string(mode) + "_" + padding + (corners ? "_corners" : ""),
             "GridSample",
             {X({2, 3, 4, 5}), X({2, 3, 4, 2}, -2.6, 2.6)},
             Options(mode, padding, corners)});
      }
    }
  }
  cases.push_back({"one_axis",
                   "GridSample",
                   {X({2, 1, 5}), X({2, 4, 1}, -1.3, 1.3)},
                   Options("linear", "zeros", 0)});
  cases.push_back({"volume",
                   "GridSample",
                   {X({1, 2, 3, 4, 2}), X({1, 2, 2, 3, 3}, -1.3, 1.3)},
                   Options("linear", "border", 1)});
  cases.push_back({"one_element",
                   "GridSample",
                   {X({1, 2, 1, 1}), X({1, 2, 2, 2}, -0.9, 0.9)},
                   Options("linear", "reflection", 1)});
  cases.push_back({"fixed_grid",
                   "GridSample",
                   {X({1, 2, 3, 3}), Doubles({1, 1, 2, 2}, {0.3, -0.2, 9, 1})},
                   Options("cubic", "border", 0)});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, GridSample, testing::ValuesIn(GridSampleCases()),
                         CaseName);

}  // namespace
}  // namespace onnx_fp8
