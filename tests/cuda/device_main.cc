// SPDX-License-Identifier: Apache-2.0
// The tests of kernels and training on a real GPU, where there is one.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/support/left_out.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    onnx_fp8::LeaveOut("tests on a GPU, which this machine lacks");
    return 0;
  }
  return RUN_ALL_TESTS();
}
