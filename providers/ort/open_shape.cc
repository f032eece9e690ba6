// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/open_shape.h"

#include <atomic>

namespace onnx_fp8 {

void SetShape(OrtTensorTypeAndShapeInfo* info, const Shape& shape) {
  static std::atomic<int64_t> count = 0;
  std::vector<std::string> names(shape.size());
  std::vector<const char*> pointers;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) names[i] = Concat("onnx_fp8.axis.", count++);
    pointers.push_back(names[i].c_str());
  }
  Must(Ort().SetDimensions(info, shape.data(), shape.size()));
  Must(Ort().SetSymbolicDimensions(info, pointers.data(), pointers.size()));
}

}  // namespace onnx_fp8
