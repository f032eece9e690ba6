// SPDX-License-Identifier: Apache-2.0
#include "optimizers/master_format.h"

#include <algorithm>

#include "base/check.h"

namespace onnx_fp8 {

std::vector<std::string> MasterFormats() {
  return {"float32", "split8", "bfloat16", "split"};
}

void CheckMaster(const OptimizerSpec& spec) {
  Check(std::ranges::count(MasterFormats(), spec.master) > 0,
        "expected master float32, split8, bfloat16 or split, got ",
        spec.master);
}

DType CorrectionOf(const OptimizerSpec& spec) {
  if (spec.master == "split8") return DType::kInt8;
  return spec.master == "split" ? DType::kInt16 : DType::kUndefined;
}

}  // namespace onnx_fp8
