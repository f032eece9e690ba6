// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/tensor_facts.h"

#include <atomic>

namespace onnx_fp8 {
namespace {

using InfoOf = OrtStatus* (*)(const OrtKernelInfo*, size_t, OrtTypeInfo**);

TensorFacts NodeFacts(InfoOf get, const OrtKernelInfo* info, size_t i) {
  OrtTypeInfo* type = nullptr;
  Must(get(info, i, &type));
  TensorFacts facts;
  OrtStatus* status = Guarded([&] {
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;
    Must(Ort().CastTypeInfoToTensorInfo(type, &tensor));
    facts = FactsOf(tensor);
  });
  Ort().ReleaseTypeInfo(type);
  Must(status);
  return facts;
}

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

}  // namespace

TensorFacts FactsOf(const OrtTensorTypeAndShapeInfo* info) {
  TensorFacts facts;
  if (!info) return facts;
  size_t rank = 0;
  Must(Ort().GetTensorElementType(info, &facts.type));
  Must(Ort().GetDimensionsCount(info, &rank));
  facts.shape.emplace(rank, -1);
  Must(Ort().GetDimensions(info, facts.shape->data(), rank));
  return facts;
}

TensorFacts OperandFacts(OrtShapeInferContext* context, size_t i) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  Must(Ort().ShapeInferContext_GetInputTypeShape(context, i, &info));
  return FactsOf(info);
}

void SetResult(OrtShapeInferContext* context, size_t i,
               const TensorFacts& facts) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  Must(Ort().CreateTensorTypeAndShapeInfo(&info));
  OrtStatus* status = Guarded([&] {
    Must(Ort().SetTensorElementType(info, facts.type));
    if (facts.shape) SetShape(info, *facts.shape);
    Must(Ort().ShapeInferContext_SetOutputTypeShape(context, i, info));
  });
  Ort().ReleaseTensorTypeAndShapeInfo(info);
  Must(status);
}

TensorFacts OperandFacts(const OrtKernelInfo* info, size_t i) {
  return NodeFacts(Ort().KernelInfo_GetInputTypeInfo, info, i);
}

TensorFacts ResultFacts(const OrtKernelInfo* info, size_t i) {
  return NodeFacts(Ort().KernelInfo_GetOutputTypeInfo, info, i);
}

}  // namespace onnx_fp8
