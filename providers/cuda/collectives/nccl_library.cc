// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "base/check.h"
#include "providers/cuda/collectives/nccl.h"
#include "providers/cuda/core/find_function.h"

namespace onnx_fp8::cuda {
namespace {

Nccl LoadNccl() {
  // It stays for the rest of the process.
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  Check(library != nullptr,
        "[provider cuda] expected the library libnccl.so.2 for several ranks, "
        "got none: install NCCL, or put its folder into LD_LIBRARY_PATH");
  Nccl nccl = {};
#define ONNX_FP8_FIND(name) \
  FindFunction(library, "libnccl.so.2", "nccl" #name, &nccl.name)
  ONNX_FP8_FIND(GetVersion);
  ONNX_FP8_FIND(GetUniqueId);
  ONNX_FP8_FIND(CommInitRank);
  ONNX_FP8_FIND(CommDestroy);
  ONNX_FP8_FIND(CommAbort);
  ONNX_FP8_FIND(CommGetAsyncError);
  ONNX_FP8_FIND(GetErrorString);
  ONNX_FP8_FIND(GetLastError);
  ONNX_FP8_FIND(GroupStart);
  ONNX_FP8_FIND(GroupEnd);
  ONNX_FP8_FIND(AllReduce);
  ONNX_FP8_FIND(AllGather);
  ONNX_FP8_FIND(ReduceScatter);
  ONNX_FP8_FIND(Broadcast);
#undef ONNX_FP8_FIND
  return nccl;
}

}  // namespace

const Nccl& NcclFunctions() {
  static const Nccl functions = LoadNccl();
  return functions;
}

}  // namespace onnx_fp8::cuda
