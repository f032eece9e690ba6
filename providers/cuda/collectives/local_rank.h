// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace onnx_fp8::cuda {

// The number of this process on its machine, as the launcher's variables say; 0
// without one. `variable` is std::getenv but for tests. Errors: a variable that
// is no number.
int LocalRank(const std::function<const char*(const char*)>& variable);

// The device of the process `local_rank` of a machine, of the `count` that it
// sees. A launcher may show each process its own GPU only, as Slurm does with
// --gpus-per-task=1: `visible`, the variable CUDA_VISIBLE_DEVICES or null, then
// names one. Errors: there are fewer GPUs than processes. (If several processes
// see the same GPU, NCCL refuses it.)
int DeviceOf(int local_rank, int count, const char* visible);

// Makes the GPU of this process the current one, so that each process of a
// machine has its own. Errors: as above.
void UseOwnDevice(const std::function<const char*(const char*)>& variable);

}  // namespace onnx_fp8::cuda
