// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/custom_op.h"

namespace onnx_fp8 {

CustomOp::CustomOp() : OrtCustomOp{} {
  version = kCustomOpVersion;
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* {
    return nullptr;  // the CPU
  };
  GetInputType = [](const OrtCustomOp*, size_t) {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;  // any
  };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) {
    return OrtMemTypeDefault;
  };
  auto one = [](const OrtCustomOp*) { return 1; };
  GetVariadicInputMinArity = one;
  GetVariadicInputHomogeneity = one;
  GetVariadicOutputMinArity = one;
  GetVariadicOutputHomogeneity = one;
  GetStartVersion = one;
  GetEndVersion = one;
}

}  // namespace onnx_fp8
