// SPDX-License-Identifier: Apache-2.0
//
// The functions of cudnn.h that we and cuDNN's frontend call. Each calls the
// function of that name in the library, which is opened at run time.
#include "providers/cuda/library/cudnn_library.h"

#include <cudnn.h>
#include <dlfcn.h>

#include "base/check.h"
#include "providers/cuda/library/library_name.h"

namespace onnx_fp8::cuda {
namespace {

constexpr size_t kOldest = 91501;

struct Library {
  void* handle = nullptr;
  size_t version = 0;
};

Library Open() {
  for (const char* name : {"libcudnn.so.9", ONNX_FP8_CUDNN_LIBRARY}) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // for good
    if (!handle) continue;
    auto* version = reinterpret_cast<decltype(&cudnnGetVersion)>(
        dlsym(handle, "cudnnGetVersion"));
    if (version && version() >= kOldest) return {handle, version()};
  }
  return {};
}

const Library& TheLibrary() {
  static const Library library = Open();
  return library;
}

template <typename F>
F* Find(const char* name) {
  void* handle = TheLibrary().handle;
  void* found = handle ? dlsym(handle, name) : nullptr;
  Check(found != nullptr, "[provider cuda] expected the function ", name,
        " in libcudnn, got none");
  return reinterpret_cast<F*>(found);
}

}  // namespace

size_t OpenCudnn() { return TheLibrary().version; }

std::string LibraryName() {
  size_t version = OpenCudnn();
  if (version == 0) return "";
  return Concat("cuDNN ", version / 10000, ".", version / 100 % 100, ".",
                version % 100);
}

}  // namespace onnx_fp8::cuda

#define ONNX_FP8_FORWARD(type, name, parameters, arguments)                    \
  type name parameters {                                                       \
    static auto* const function = onnx_fp8::cuda::Find<decltype(name)>(#name); \
    return function arguments;                                                 \
  }

ONNX_FP8_FORWARD(size_t, cudnnGetVersion, (), ())
ONNX_FP8_FORWARD(const char*, cudnnGetErrorString, (cudnnStatus_t status),
                 (status))
ONNX_FP8_FORWARD(void, cudnnGetLastErrorString, (char* text, size_t size),
                 (text, size))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), (handle))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnSetStream,
                 (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnGetStream,
                 (cudnnHandle_t handle, cudaStream_t* stream), (handle, stream))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnBackendCreateDescriptor,
                 (cudnnBackendDescriptorType_t type,
                  cudnnBackendDescriptor_t* descriptor),
                 (type, descriptor))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnBackendDestroyDescriptor,
                 (cudnnBackendDescriptor_t descriptor), (descriptor))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnBackendFinalize,
                 (cudnnBackendDescriptor_t descriptor), (descriptor))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnBackendSetAttribute,
                 (cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count,
                  const void* elements),
                 (descriptor, name, type, count, elements))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnBackendGetAttribute,
                 (cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t capacity,
                  int64_t* count, void* elements),
                 (descriptor, name, type, capacity, count, elements))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnBackendExecute,
                 (cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                  cudnnBackendDescriptor_t operands),
                 (handle, plan, operands))
ONNX_FP8_FORWARD(cudnnStatus_t, cudnnGetExecutionPlanWorkspaceSize,
                 (cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                  cudnnBackendDescriptor_t operands, size_t* bytes),
                 (handle, plan, operands, bytes))
