// SPDX-License-Identifier: Apache-2.0
#include "data/npy.h"

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"

namespace onnx_fp8 {

void FuzzNpy(std::string_view bytes) {
  Tensor array = ReadNpy(ScratchFile("x.npy", bytes));
  Touch(array);
  Touch(ConvertTo(array, DType::kFloat));
}

}  // namespace onnx_fp8
