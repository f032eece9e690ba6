// SPDX-License-Identifier: Apache-2.0
#include "training/run/data_layout.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

const LossSpec kCrossEntropy{"cross_entropy", "labels", "logits"};

InputInfo Input(const std::string& name, DType dtype, Shape shape,
                std::vector<std::string> axes) {
  return {name, dtype, std::move(shape), std::move(axes), false};
}

bool IsWhole(const DataLayout& layout, const std::string& name) {
  for (const DatasetInput& input : layout.inputs) {
    if (input.name == name) return input.whole;
  }
  ADD_FAILURE() << name;
  return false;
}

TEST(DataLayoutTest, LabelIsAddedWithTheLosssType) {
  std::vector<InputInfo> inputs = {
      Input("x", DType::kFloat, {-1, 64}, {"batch", ""})};
  DataLayout layout = LayOutData(inputs, kCrossEntropy, {});
  ASSERT_EQ(layout.inputs.size(), 2u);
  EXPECT_EQ(layout.inputs[1].name, "labels");
  EXPECT_EQ(layout.inputs[1].dtype, DType::kInt64);
  EXPECT_EQ(layout.batch_size, 8);
  EXPECT_FALSE(layout.fixed_batch);
  layout = LayOutData(inputs, {"mse", "target", ""}, {});
  EXPECT_EQ(layout.inputs[1].dtype, DType::kFloat);
  EXPECT_EQ(LayOutData(inputs, {"output:loss", "labels", ""}, {}).inputs.size(),
            1u);
}

TEST(DataLayoutTest, InputsWithAnotherFirstAxisAreWhole) {
  std::vector<InputInfo> inputs = {
      Input("x", DType::kFloat, {-1, 8}, {"nodes", ""}),
      Input("edges", DType::kInt64, {2, -1}, {"", "edges"}),
      Input("table", DType::kFloat, {-1, 4}, {"positions", ""}),
      Input("scale", DType::kFloat, {}, {}),
      Input("y", DType::kFloat, {-1}, {"nodes"})};
  DataLayout layout = LayOutData(inputs, kCrossEntropy, {});
  EXPECT_FALSE(IsWhole(layout, "x"));
  EXPECT_TRUE(IsWhole(layout, "edges"));
  EXPECT_TRUE(IsWhole(layout, "table"));
  EXPECT_TRUE(IsWhole(layout, "scale"));
  EXPECT_FALSE(IsWhole(layout, "y"));
  EXPECT_FALSE(IsWhole(layout, "labels"));
}

TEST(DataLayoutTest, WholeWinsAndMovesTheBatchAxis) {
  std::vector<InputInfo> inputs = {
      Input("table", DType::kFloat, {-1, 4}, {"n", ""}),
      Input("x", DType::kFloat, {-1, 8}, {"batch", ""})};
  DataOptions options;
  options.whole = {"table"};
  DataLayout layout = LayOutData(inputs, kCrossEntropy, options);
  EXPECT_TRUE(IsWhole(layout, "table"));
  EXPECT_FALSE(IsWhole(layout, "x"));
  options.whole = {"labels"};
  EXPECT_TRUE(IsWhole(LayOutData(inputs, kCrossEntropy, options), "labels"));
  options.whole = {"nothing"};
  EXPECT_THROW(LayOutData(inputs, kCrossEntropy, options), OptionError);
}

TEST(DataLayoutTest, ExportedSizesAreFixed) {
  std::vector<InputInfo> inputs = {Input("ids", DType::kInt64, {4, 16}, {}),
                                   Input("table", DType::kFloat, {16, 8}, {})};
  DataOptions options;
  DataLayout layout = LayOutData(inputs, kCrossEntropy, options);
  EXPECT_EQ(layout.batch_size, 4);
  EXPECT_TRUE(layout.fixed_batch);
  EXPECT_EQ(layout.seq_len, 16);
  EXPECT_TRUE(IsWhole(layout, "table"));
  options.batch_size = 8;
  EXPECT_THROW(LayOutData(inputs, kCrossEntropy, options), OptionError);
  options.batch_size = 4;
  options.seq_len = 8;
  EXPECT_THROW(LayOutData(inputs, kCrossEntropy, options), OptionError);
}

TEST(DataLayoutTest, EndsOfDocumentsNeedSegments) {
  std::vector<InputInfo> inputs = {
      Input("ids", DType::kInt64, {-1, -1}, {"batch", "seq"}),
      Input("segments", DType::kInt32, {-1, -1}, {"batch", "seq"})};
  DataOptions options;
  options.eod = 5;
  EXPECT_THROW(LayOutData(inputs, kCrossEntropy, options), OptionError);
  options.segments = "segments";
  LossSpec loss = kCrossEntropy;
  EXPECT_EQ(LayOutData(inputs, loss, options).ignored, -100);
  loss.ignore_index = 3;
  const DataLayout layout = LayOutData(inputs, loss, options);
  EXPECT_FALSE(IsWhole(layout, "segments"));
  const DatasetSpec spec = MakeDatasetSpec({"a.bin"}, layout);
  EXPECT_EQ(spec.eod, 5);
  EXPECT_EQ(spec.segments, "segments");
  EXPECT_EQ(spec.ignored, 3);
}

TEST(DataLayoutTest, LabelsSayWhichOfThemDoNotCount) {
  const std::vector<InputInfo> inputs = {
      Input("x", DType::kFloat, {-1, 64}, {"batch", ""})};
  LossSpec loss = kCrossEntropy;
  const auto ignored = [&] {
    const DataLayout layout = LayOutData(inputs, loss, {});
    EXPECT_FALSE(layout.inputs[0].is_label);
    EXPECT_TRUE(layout.inputs[1].is_label);
    EXPECT_FALSE(layout.inputs[0].ignored.has_value());
    return layout.inputs[1].ignored;
  };
  EXPECT_EQ(ignored(), -100);
  loss.ignore_index = 7;
  EXPECT_EQ(ignored(), 7);
  loss = {"mse", "labels", "logits"};
  EXPECT_FALSE(ignored().has_value());
}

TEST(DataLayoutTest, LabelThatTheGraphReadsIsThere) {
  std::vector<InputInfo> inputs = {
      Input("ids", DType::kInt64, {-1, -1}, {"batch", "seq"}),
      Input("labels", DType::kInt64, {-1, -1}, {"b", "s"})};
  DataLayout layout = LayOutData(inputs, {"output:loss", "labels", ""}, {});
  EXPECT_EQ(layout.inputs.size(), 2u);
  EXPECT_FALSE(IsWhole(layout, "labels"));
}

TEST(CountTokensTest, OnlyLabelsPerToken) {
  TensorMap batch = {{"labels", Tensor::Zeros(DType::kInt64, {4, 16})},
                     {"target", Tensor::Zeros(DType::kInt64, {4})},
                     {"image", Tensor::Zeros(DType::kFloat, {4, 16})}};
  EXPECT_EQ(CountTokens(batch, "labels"), 64);
  EXPECT_EQ(CountTokens(batch, "target"), 0);
  EXPECT_EQ(CountTokens(batch, "image"), 0);
  EXPECT_EQ(CountTokens(batch, "none"), 0);
}

}  // namespace
}  // namespace onnx_fp8
