// SPDX-License-Identifier: Apache-2.0
//
// A driver without a GPU, libcuda.so.1, with which cuDNN compiles its kernels.
// Whoever asks for a device hears that there is none. Compiled kernels seem to
// load.
extern "C" {

enum Result { kSuccess = 0, kNoDevice = 100 };

#define ONNX_FP8_NO_DEVICE(name) \
  Result name() { return kNoDevice; }
ONNX_FP8_NO_DEVICE(cuCtxGetCurrent)
ONNX_FP8_NO_DEVICE(cuCtxGetLimit)
ONNX_FP8_NO_DEVICE(cuCtxPopCurrent)
ONNX_FP8_NO_DEVICE(cuCtxPushCurrent)
ONNX_FP8_NO_DEVICE(cuDeviceGet)
ONNX_FP8_NO_DEVICE(cuDeviceGetCount)
ONNX_FP8_NO_DEVICE(cuDriverGetVersion)
ONNX_FP8_NO_DEVICE(cuGetErrorName)
ONNX_FP8_NO_DEVICE(cuGetErrorString)
ONNX_FP8_NO_DEVICE(cuInit)
ONNX_FP8_NO_DEVICE(cuKernelGetAttribute)
ONNX_FP8_NO_DEVICE(cuLaunchCooperativeKernel)
ONNX_FP8_NO_DEVICE(cuLaunchKernel)
ONNX_FP8_NO_DEVICE(cuLaunchKernelEx)
ONNX_FP8_NO_DEVICE(cuLibraryLoadFromFile)
ONNX_FP8_NO_DEVICE(cuLinkAddData)
ONNX_FP8_NO_DEVICE(cuLinkComplete)
ONNX_FP8_NO_DEVICE(cuLinkCreate)
ONNX_FP8_NO_DEVICE(cuLinkDestroy)
ONNX_FP8_NO_DEVICE(cuModuleGetFunction)
ONNX_FP8_NO_DEVICE(cuModuleLoadData)
ONNX_FP8_NO_DEVICE(cuModuleUnload)
ONNX_FP8_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
ONNX_FP8_NO_DEVICE(cuStreamGetCtx)
ONNX_FP8_NO_DEVICE(cuTensorMapEncodeIm2col)
ONNX_FP8_NO_DEVICE(cuTensorMapEncodeTiled)

// Gives out a handle that is not null.
#define ONNX_FP8_SEEMS_TO_LOAD(name) \
  Result name(void** handle) {       \
    static int object;               \
    *handle = &object;               \
    return kSuccess;                 \
  }
ONNX_FP8_SEEMS_TO_LOAD(cuLibraryLoadData)
ONNX_FP8_SEEMS_TO_LOAD(cuLibraryGetKernel)
ONNX_FP8_SEEMS_TO_LOAD(cuKernelGetFunction)

Result cuKernelSetAttribute() { return kSuccess; }
Result cuLibraryUnload() { return kSuccess; }

}  // extern "C"
