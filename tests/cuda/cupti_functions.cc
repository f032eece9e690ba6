// SPDX-License-Identifier: Apache-2.0
// The emulation's functions in place of the machine's library.
#include "providers/cuda/profiling/cupti.h"
#include "tests/cuda/emulation/cupti_api.h"

namespace onnx_fp8::cuda {

const Cupti& CuptiFunctions() {
  namespace cupti = emulation::cupti;
  static const Cupti functions = {
      .GetTimestamp = cupti::GetTimestamp,
      .GetResultString = cupti::GetResultString,
      .ActivityRegisterCallbacks = cupti::ActivityRegisterCallbacks,
      .ActivityEnable = cupti::ActivityEnable,
      .ActivityDisable = cupti::ActivityDisable,
      .ActivityFlushAll = cupti::ActivityFlushAll,
      .ActivityGetNextRecord = cupti::ActivityGetNextRecord,
      .ActivityGetNumDroppedRecords = cupti::ActivityGetNumDroppedRecords};
  return functions;
}

}  // namespace onnx_fp8::cuda
