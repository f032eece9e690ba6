// SPDX-License-Identifier: Apache-2.0
//
// In place of NVRTC's header, which a toolkit from PyPI lacks. cuDNN's frontend
// needs it for an engine of its own that we never ask for. cuDNN has its
// compiler inside.
#pragma once

enum nvrtcResult { NVRTC_SUCCESS, NVRTC_ERROR_INTERNAL_ERROR };
using nvrtcProgram = struct _nvrtcProgram*;

inline const char* nvrtcGetErrorString(nvrtcResult) { return "no NVRTC"; }

#define ONNX_FP8_NO_NVRTC(name)        \
  template <typename... T>             \
  nvrtcResult name(const T&...) {      \
    return NVRTC_ERROR_INTERNAL_ERROR; \
  }
ONNX_FP8_NO_NVRTC(nvrtcCreateProgram)
ONNX_FP8_NO_NVRTC(nvrtcCompileProgram)
ONNX_FP8_NO_NVRTC(nvrtcDestroyProgram)
ONNX_FP8_NO_NVRTC(nvrtcGetProgramLogSize)
ONNX_FP8_NO_NVRTC(nvrtcGetProgramLog)
ONNX_FP8_NO_NVRTC(nvrtcGetCUBINSize)
ONNX_FP8_NO_NVRTC(nvrtcGetCUBIN)
ONNX_FP8_NO_NVRTC(nvrtcGetPTXSize)
ONNX_FP8_NO_NVRTC(nvrtcGetPTX)
#undef ONNX_FP8_NO_NVRTC
