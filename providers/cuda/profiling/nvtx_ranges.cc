// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/profiling/nvtx_ranges.h"

#include <cstdlib>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ONNX_FP8_NVTX 1
#endif

namespace onnx_fp8::cuda {
namespace {

#if defined(ONNX_FP8_NVTX)
class Nvtx : public HostRanges {
 public:
  void Push(const std::string& name) override { nvtxRangePushA(name.c_str()); }
  void Pop() override { nvtxRangePop(); }
};
#endif

}  // namespace

// A tool that is attached names its library in this variable, and NVTX's header
// opens that library. Without a tool the executor makes no names of ranges.
HostRanges* NvtxRanges() {
#if defined(ONNX_FP8_NVTX)
  static Nvtx ranges;
  return std::getenv("NVTX_INJECTION64_PATH") ? &ranges : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace onnx_fp8::cuda
