// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Convs = testing::TestWithParam<GradientCase>;

TEST_P(Convs, RuleIsTheDerivative) { CheckGradient(GetParam()); }

using Numbers = std::vector<int64_t>;

struct Window {
  Numbers strides = {}, pads = {}, dilations = {};
  int64_t group = 1;
  std::string auto_pad = "";
  Numbers kernel = {}, output_padding = {}, output_shape = {};
  int64_t ceil = 0, count_pad = 0, p = 0, column_major = 0;
};

Attributes Of(const Window& w) {
  Attributes a;
  auto add = [&](const char* name, const Numbers& values) {
    if (!values.empty()) a[name] = values;
  };
  add("strides", w.strides);
  add("pads", w.pads);
  add("dilations", w.dilations);
  add("kernel_shape", w.kernel);
  add("output_padding", w.output_padding);
  add("output_shape", w.output_shape);
  if (w.group != 1) a["group"] = w.group;
  if (!w.auto_pad.empty()) a["auto_pad"] = w.auto_pad;
  if (w.ceil) a["ceil_mode"] = w.ceil;
  if (w.count_pad) a["count_include_pad"] = w.count_pad;
  if (w.p) a["p"] = w.p;
  if (w.column_major) a["storage_order"] = w.column_major;
  return a;
}

std::vector<GradientCase> ConvCases() {
  auto conv = [](const char* name, Shape x, Shape w, const Window& window = {},
                 bool bias = false) {
    std::vector<Operand> inputs = {X(x), X(w)};
    if (bias) inputs.push_back(X({w[0]}));
    return GradientCase{std::string("Conv") + name, "Conv", inputs, Of(window)};
  };
  return {
      conv("2d", {2, 2, 4, 3}, {3, 2, 3, 2}, {}, true),
      conv("1d", {2, 2, 5}, {2, 2, 3}, {}, true),
      conv("3d", {1, 2, 3, 3, 3}, {2, 2, 2, 2, 2},
           {.pads = {0, 1, 0, 1, 0, 0}}),
      conv("Pads", {1, 1, 3, 3}, {2, 1, 3, 3}, {.pads = {1, 1, 1, 1}}),
      conv("UnevenPads", {1, 1, 3, 4}, {1, 1, 2, 3}, {.pads = {0, 2, 1, 0}}),
      conv("Strides", {1, 2, 6, 5}, {2, 2, 3, 2}, {.strides = {2, 3}}),
      conv("StridesLeaveRest", {2, 1, 8}, {1, 1, 3}, {.strides = {3}}),
      conv("StridesWiderThanKernel", {1, 1, 7, 7}, {2, 1, 1, 2},
           {.strides = {3, 3}}),
      conv("StridesPads", {1, 1, 6, 6}, {2, 1, 3, 3},
           {.strides = {2, 2}, .pads = {1, 1, 1, 1}}),
      conv("Dilations", {1, 2, 6, 5}, {1, 2, 2, 3}, {.dilations = {3, 2}}),
      conv("DilationsStridesPads", {1, 1, 7, 8}, {2, 1, 2, 3},
           {.strides = {2, 3}, .pads = {1, 0, 2, 2}, .dilations = {2, 2}}),
      conv("Group2", {2, 4, 4}, {4, 2, 2}, {.group = 2}, true),
      conv("Group3Strides", {2, 3, 5, 4}, {6, 1, 2, 2},
           {.strides = {2, 1}, .group = 3}),
      conv("Depthwise", {2, 3, 4, 4}, {3, 1, 3, 3},
           {.pads = {1, 1, 1, 1}, .group = 3}, true),
      conv("Group2Dilated3d", {1, 2, 4, 3, 3}, {2, 1, 2, 2, 1},
           {.dilations = {2, 1, 1}, .group = 2}),
      conv("SameUpper", {1, 1, 5, 4}, {1, 1, 2, 3},
           {.strides = {2, 2}, .auto_pad = "SAME_UPPER"}),
      conv("SameLower", {1, 1, 5, 4}, {1, 1, 2, 3},
           {.strides = {2, 2}, .auto_pad = "SAME_LOWER"}),
      conv("Valid", {1, 1, 5}, {1, 1, 2},
           {.strides = {2}, .auto_pad = "VALID"}),
      conv("Patches", {2, 3, 4, 4}, {5, 3, 2, 2}, {.strides = {2, 2}}, true),
      conv("Pointwise", {2, 3, 4}, {4, 3, 1}),
  };
}

std::vector<GradientCase> ConvTransposeCases() {
  auto conv = [](const char* name, Shape x, Shape w, const Window& window = {},
                 bool bias = false) {
    std::vector<Operand> inputs = {X(x), X(w)};
    if (bias) inputs.push_back(X({w[1] * window.group}));
    return GradientCase{std::string("ConvTranspose") + name, "ConvTranspose",
                        inputs, Of(window)};
  };
  return {
      conv("2d", {2, 2, 3, 2}, {2, 3, 2, 3}, {}, true),
      conv("1d", {2, 2, 3}, {2, 2, 3}, {.strides = {2}}),
      conv("3d", {1, 1, 2, 2, 2}, {1, 2, 2, 1, 2}, {.strides = {1, 2, 1}}),
      conv("Pads", {1, 2, 3, 3}, {2, 1, 3, 3},
           {.strides = {2, 2}, .pads = {1, 0, 1, 2}}),
      conv("OutputPadding", {1, 1, 3, 2}, {1, 2, 3, 3},
           {.strides = {2, 3}, .pads = {1, 1, 1, 1}, .output_padding = {1, 2}}),
      conv("OutputShape", {1, 1, 3, 3}, {1, 2, 3, 3},
           {.strides = {3, 2}, .output_shape = {8, 6}}),
      conv("OutputShapeUpper", {1, 1, 3, 3}, {1, 1, 3, 3},
           {.strides = {3, 2},
            .auto_pad = "SAME_UPPER",
            .output_shape = {8, 6}}),
      conv("SameUpper", {1, 1, 3, 3}, {1, 2, 3, 3},
           {.strides = {2, 2}, .auto_pad = "SAME_UPPER"}),
      conv("SameLower", {1, 1, 3, 3}, {1, 2, 3, 3},
           {.strides = {2, 2}, .auto_pad = "SAME_LOWER"}),
      conv("Dilations", {1, 2, 3, 2}, {2, 1, 2, 2},
           {.strides = {2, 1}, .dilations = {3, 2}}),
      conv("Group", {2, 4, 3}, {4, 2, 2}, {.strides = {2}, .group = 2}, true),
      conv("Depthwise", {1, 3, 2, 2}, {3, 1, 2, 2}, {.group = 3}),
  };
}

std::vector<GradientCase> PoolCases() {
  auto pool = [](const char* op, const char* name, Shape x,
                 const Window& window) {
    return GradientCase{std::string(op) + name, op, {X(x)}, Of(window)};
  };
  return {
      pool("AveragePool", "", {2, 2, 4, 4},
           {.strides = {2, 2}, .kernel = {2, 2}}),
      pool("AveragePool", "1d", {2, 2, 5}, {.strides = {2}, .kernel = {3}}),
      pool("AveragePool", "3d", {1, 1, 3, 3, 3}, {.kernel = {2, 1, 2}}),
      pool("AveragePool", "Pads", {1, 2, 4, 5},
           {.strides = {2, 1}, .pads = {1, 0, 1, 2}, .kernel = {3, 3}}),
      pool("AveragePool", "CountPads", {1, 2, 4, 5},
           {.strides = {2, 1},
            .pads = {1, 0, 1, 2},
            .kernel = {3, 3},
            .count_pad = 1}),
      pool("AveragePool", "Ceil", {1, 1, 6, 5},
           {.strides = {2, 2}, .kernel = {3, 2}, .ceil = 1}),
      pool("AveragePool", "CeilCountPads", {1, 1, 6},
           {.strides = {3},
            .pads = {1, 1},
            .kernel = {4},
            .ceil = 1,
            .count_pad = 1}),
      pool("AveragePool", "Dilations", {1, 1, 6, 6},
           {.pads = {1, 1, 1, 1}, .dilations = {2, 2}, .kernel = {2, 3}}),
      pool("AveragePool", "SameUpper", {1, 1, 5, 5},
           {.strides = {2, 2}, .auto_pad = "SAME_UPPER", .kernel = {2, 2}}),
      pool("AveragePool", "SameLower", {1, 1, 5, 5},
           {.strides = {2, 2}, .auto_pad = "SAME_LOWER", .kernel = {2, 2}}),
      pool("MaxPool", "", {2, 2, 4, 4}, {.strides = {2, 2}, .kernel = {2, 2}}),
      pool("MaxPool", "Overlap", {1, 2, 5, 5}, {.kernel = {3, 2}}),
      pool("MaxPool", "1dPads", {2, 2, 5},
           {.strides = {2}, .pads = {1, 1}, .kernel = {3}}),
      pool("MaxPool", "3d", {1, 2, 3, 3, 3}, {.kernel = {2, 2, 2}}),
      pool("MaxPool", "Ceil", {1, 1, 6, 5},
           {.strides = {2, 2}, .kernel = {3, 2}, .ceil = 1}),
      pool("MaxPool", "Dilations", {1, 1, 6, 6},
           {.dilations = {2, 3}, .kernel = {2, 2}}),
      pool("MaxPool", "ColumnMajor", {1, 2, 3, 4},
           {.kernel = {2, 2}, .column_major = 1}),
      pool("MaxPool", "SameUpper", {1, 1, 5, 5},
           {.strides = {2, 2}, .auto_pad = "SAME_UPPER", .kernel = {3, 3}}),
      pool("LpPool", "", {1, 2, 4, 4}, {.strides = {2, 1}, .kernel = {2, 3}}),
      pool("LpPool", "P1", {1, 1, 4, 4}, {.kernel = {2, 2}, .p = 1}),
      pool("LpPool", "P3", {1, 1, 5},
           {.strides = {2}, .pads = {1, 1}, .kernel = {3}, .p = 3}),
      {"GlobalAveragePool", "GlobalAveragePool", {X({2, 3, 2, 3})}},
      {"GlobalLpPool", "GlobalLpPool", {X({2, 3, 2, 3})}},
      {"GlobalLpPoolP3", "GlobalLpPool", {X({2, 1, 4})}, {{"p", int64_t{3}}}},
      {"GlobalMaxPool", "GlobalMaxPool", {X({2, 3, 2, 3})}},
      {"CausalConv",
       "CausalConvWithState",
       {X({2, 3, 5}), X({3, 1, 3}), X({3}), X({2, 3, 2})},
       {},
       2},
      {"CausalConvWithoutState",
       "CausalConvWithState",
       {X({1, 2, 2}), X({2, 1, 4})},
       {},
       2},
      {"Col2Im", "Col2Im", {X({1, 6, 8}), Ints({5, 4}), Ints({2, 3})}},
      {"Col2Im3d",
       "Col2Im",
       {X({2, 8, 4}), Ints({2, 3, 3}), Ints({2, 1, 2})},
       {{"strides", std::vector<int64_t>{1, 2, 1}}}},
      {"Col2ImStridesPadsDilations",
       "Col2Im",
       {X({2, 8, 9}), Ints({6, 5}), Ints({2, 2})},
       {{"strides", std::vector<int64_t>{2, 2}},
        {"pads", std::vector<int64_t>{1, 1, 0, 1}},
        {"dilations", std::vector<int64_t>{2, 1}}}},
  };
}

std::vector<GradientCase> ResizeCases() {
  auto resize = [](const char* name, Shape x, std::vector<float> scales,
                   std::vector<int64_t> sizes, Attributes attributes) {
    int64_t count = static_cast<int64_t>(scales.size());
    Operand s =
        scales.empty() ? None() : Constant(Tensor::From({count}, scales));
    std::vector<Operand> inputs = {X(x), None(), s};
    if (!sizes.empty()) inputs.push_back(Ints(sizes));
    return GradientCase{std::string("Resize") + name, "Resize", inputs,
                        attributes};
  };
  auto mode = [](const char* m, const char* how = "half_pixel") {
    return Attributes{{"mode", std::string(m)},
                      {"coordinate_transformation_mode", std::string(how)}};
  };
  Attributes axes = mode("linear", "align_corners");
  axes["axes"] = std::vector<int64_t>{2, -1};
  Attributes ratio = mode("linear");
  ratio["keep_aspect_ratio_policy"] = std::string("not_larger");
  ratio["axes"] = std::vector<int64_t>{2, 3};
  Attributes cubic = mode("cubic");
  cubic["cubic_coeff_a"] = -0.5f;
  cubic["exclude_outside"] = int64_t{1};
  Attributes smooth = mode("linear");
  smooth["antialias"] = int64_t{1};
  return {
      resize("Nearest", {1, 2, 2, 3}, {1, 1, 2, 2}, {}, mode("nearest")),
      resize("NearestAsymmetric", {1, 1, 3, 2}, {1, 1, 2.5f, 3}, {},
             mode("nearest", "asymmetric")),
      resize("NearestDown", {1, 1, 6, 5}, {}, {1, 1, 3, 2}, mode("nearest")),
      resize("Linear", {1, 2, 3, 3}, {1, 1, 2, 2}, {}, mode("linear")),
      resize("LinearSizes", {1, 1, 3, 4}, {}, {1, 1, 5, 3}, mode("linear")),
      resize("LinearAlignCornersAxes", {1, 2, 3, 3}, {}, {5, 4}, axes),
      resize("LinearPyTorch", {1, 1, 4, 3}, {}, {1, 1, 1, 6},
             mode("linear", "pytorch_half_pixel")),
      resize("LinearSymmetric", {1, 1, 4, 3}, {1, 1, 1.6f, 0.7f}, {},
             mode("linear", "half_pixel_symmetric")),
      resize("LinearKeepRatio", {1, 1, 3, 4}, {}, {7, 7}, ratio),
      resize("LinearAntialias", {1, 1, 6, 6}, {}, {1, 1, 3, 4}, smooth),
      resize("Linear1d", {2, 1, 4}, {1, 1, 2}, {}, mode("linear")),
      resize("Linear3d", {1, 1, 2, 2, 3}, {1, 1, 2, 1, 2}, {}, mode("linear")),
      resize("Cubic", {1, 1, 4, 5}, {1, 1, 2, 1.5f}, {}, mode("cubic")),
      resize("CubicExcludeOutside", {1, 1, 4, 5}, {1, 1, 2, 1.5f}, {}, cubic),
  };
}

INSTANTIATE_TEST_SUITE_P(Conv, Convs, testing::ValuesIn(ConvCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(ConvTranspose, Convs,
                         testing::ValuesIn(ConvTransposeCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Pool, Convs, testing::ValuesIn(PoolCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Resize, Convs, testing::ValuesIn(ResizeCases()),
                         CaseName);

}  // namespace
}  // namespace onnx_fp8
