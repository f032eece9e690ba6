// SPDX-License-Identifier: Apache-2.0
//
// ONNX's own cases cover the semantics; this file has regions without samples.
#include <gtest/gtest.h>

#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

// Corners are x1, y1, x2, y2. The number of the other axis's samples overflows
// an integer, or would take days to count.
TEST(RoiAlign, ARegionWithoutWidthOrHeightIsZero) {
  Tensor x = Floats({1, 1, 2, 2}, {1, 2, 3, 4});
  Tensor regions = Floats({3, 4}, {0, 0, 0, 1e30f,  //
                                   0, 0, 1e30f, 0,  //
                                   0, 0, -1, 1e15f});
  Tensor images = Tensor::From({3}, std::vector<int64_t>{0, 0, 0});
  EXPECT_EQ(Doubles(RunNode1("RoiAlign", {x, regions, images})),
            (std::vector<double>{0, 0, 0}));
}

}  // namespace
}  // namespace onnx_fp8
