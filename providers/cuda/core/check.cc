// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/check.h"

#include <string_view>

#include "base/check.h"

namespace onnx_fp8 {

void CheckCuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::string_view name(call);
  name = name.substr(0, name.find('('));
  Fail("CUDA: ", name, ": ", cudaGetErrorName(error), ": ",
       cudaGetErrorString(error));
}

}  // namespace onnx_fp8
