// SPDX-License-Identifier: Apache-2.0
//
// A tool of NVTX, as Nsight Systems is one: NVTX's header opens this library
// and calls InitializeInjectionNvtx2. It prints ranges to stderr.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <cstdio>

namespace {

int Push(const char* name) {
  std::fprintf(stderr, "push %s\n", name);
  return 0;
}

int Pop() {
  std::fprintf(stderr, "pop\n");
  return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(
      get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangePushA] =
      reinterpret_cast<NvtxFunctionPointer>(Push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(Pop);
  return 1;
}
