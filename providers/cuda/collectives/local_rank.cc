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

void UseDeviceOf(int local_rank) {
  if (local_rank == 0) return;
  int count = 0;
  ONNX_FP8_CUDA(cudaGetDeviceCount(&count));
  Check(local_rank < count, "[provider cuda] expected a GPU for each of the ",
        local_rank + 1, " or more processes of this machine, got ", count,
        count == 1 ? " GPU" : " GPUs");
  ONNX_FP8_CUDA(cudaSetDevice(local_rank));
}

}  // namespace onnx_fp8::cuda
