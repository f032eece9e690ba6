// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_loss.h"

#include <gtest/gtest.h>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

// One loss node with these attributes, for scores of `shape`.
std::string Loss(const std::string& attributes, const std::string& shape,
                 const std::string& outputs = "loss: float[]") {
  return R"(graph "g" opset 24
input x: float[)" +
         shape + R"(]
const labels: int64[3] = {1,-100,0}
const weights: float[4] = {1,1,2,1}
)" + outputs +
         " = SoftmaxCrossEntropyLoss<" + attributes + R"(>(x, labels)
output loss
)";
}

const char kMean[] = "ignore_index=-100, reduction=\"mean\"";

TEST(FuseLoss, TheMeanOfRows) {
  EXPECT_EQ(AfterPass(FuseLoss, Loss(kMean, "3,4")), R"(graph "g" opset 24
input x: float[3,4]
const labels: int64[3] = {1,-100,0}
const weights: float[4] = {1.0,1.0,2.0,1.0}
loss: float[], loss.CrossEntropy.1: float[3] = onnx_fp8.CrossEntropy<ignore_index=-100>(x, labels)
output loss
)");
  ExpectSameValues(FuseLoss, Loss(kMean, "3,4"), 1e-6);
}

TEST(FuseLoss, LeavesTheRest) {
  auto weighted = Loss(kMean, "3,4");
  weighted.replace(weighted.find("(x, labels)"), 11, "(x, labels, weights)");
  for (const std::string& text :
       {Loss("ignore_index=-100, reduction=\"sum\"", "3,4"),
        Loss("reduction=\"mean\"", "3,4"), weighted,
        Loss(kMean, "3,4", "loss: float[], log_prob: float[3,4]") +
            "output log_prob\n"}) {
    EXPECT_EQ(AfterPass(FuseLoss, text).find("onnx_fp8"), std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace onnx_fp8
