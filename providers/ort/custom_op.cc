// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/custom_op.h"

namespace onnx_fp8 {
namespace {

// Functions that take a buffer tell its size by an error.
template <typename Get>
std::string TextFrom(Get get) {
  size_t size = 0;
  Succeeds(get(nullptr, &size));
  std::string text(size, '\0');
  if (size > 0) Must(get(text.data(), &size));
  return text.c_str();
}

}  // namespace

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

std::string NodeName(const OrtKernelInfo* info) {
  return TextFrom([&](char* out, size_t* size) {
    return Ort().KernelInfo_GetNodeName(info, out, size);
  });
}

std::string StringAttribute(const OrtKernelInfo* info, const char* name) {
  return TextFrom([&](char* out, size_t* size) {
    return Ort().KernelInfoGetAttribute_string(info, name, out, size);
  });
}

std::vector<int64_t> IntsAttribute(const OrtKernelInfo* info,
                                   const char* name) {
  size_t size = 0;
  Succeeds(Ort().KernelInfoGetAttributeArray_int64(info, name, nullptr, &size));
  std::vector<int64_t> list(size);
  if (size > 0) {
    Must(Ort().KernelInfoGetAttributeArray_int64(info, name, list.data(),
                                                 &size));
  }
  return list;
}

}  // namespace onnx_fp8
