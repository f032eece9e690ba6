// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/collectives/local_rank.h"

#include "base/check.h"
#include "collectives/launcher.h"
#include "providers/cuda/core/check.h"

namespace onnx_fp8::cuda {

// mpirun inside of a Slurm job sets both; the innermost launcher counts.
int LocalRank(const std::function<const char*(const char*)>& variable) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                           "LOCAL_RANK", "SLURM_LOCALID"}) {
    const char* value = variable(name);
    if (value) return LauncherNumber(name, value);
  }
  return 0;
}

int DeviceOf(int local_rank, int count, const char* visible) {
  if (local_rank == 0 || (count == 1 && visible)) return 0;
  Check(local_rank < count, "[provider cuda] expected a GPU for each of the ",
        local_rank + 1, " or more processes of this machine, got ", count,
        count == 1 ? " GPU" : " GPUs");
  return local_rank;
}

void UseOwnDevice(const std::function<const char*(const char*)>& variable) {
  int count = 0;
  ONNX_FP8_CUDA(cudaGetDeviceCount(&count));
  const int device =
      DeviceOf(LocalRank(variable), count, variable("CUDA_VISIBLE_DEVICES"));
  if (device > 0) ONNX_FP8_CUDA(cudaSetDevice(device));
}

}  // namespace onnx_fp8::cuda
