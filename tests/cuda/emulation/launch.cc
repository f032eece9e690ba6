// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/blocks.h"
#include "tests/cuda/emulation/counts.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/shared_memory.h"
#include "tests/cuda/emulation/symbols.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::emulation {
namespace {

constexpr size_t kUsualShared = 48 << 10;  // without a grant

std::map<const void*, size_t>& Grants() {
  static auto& grants = *new std::map<const void*, size_t>;
  return grants;
}

// Limits of compute capability 9.0.
bool IsLaunchable(const dim3& grid, const dim3& block) {
  bool grid_fits = grid.x > 0 && grid.y > 0 && grid.z > 0 &&
                   grid.x <= 0x7FFFFFFF && grid.y <= 65535 && grid.z <= 65535;
  bool block_fits = block.x > 0 && block.y > 0 && block.z > 0 &&
                    block.x <= 1024 && block.y <= 1024 && block.z <= 64 &&
                    uint64_t{block.x} * block.y * block.z <= 1024;
  return grid_fits && block_fits;
}

std::string SizeOf(const dim3& n) {
  return Concat("(", n.x, ",", n.y, ",", n.z, ")");
}

cudaError_t CheckLaunch(const Grid& grid) {
  bool fits = IsLaunchable(grid.grid, grid.block);
  if (fits && grid.shared <= GrantedShared(grid.kernel)) return cudaSuccess;
  Report("a grid ", SizeOf(grid.grid), " of blocks ", SizeOf(grid.block),
         " with ", grid.shared,
         " bytes of shared memory can't be launched: ", SourceOf(grid.kernel));
  return fits ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
}

}  // namespace

void GrantShared(const void* kernel, size_t bytes) { Grants()[kernel] = bytes; }

size_t GrantedShared(const void* kernel) {
  auto at = Grants().find(kernel);
  if (at != Grants().end()) return at->second;
  return kUsualShared - std::min(kUsualShared, StaticSharedBytes(kernel));
}

cudaError_t LaunchGrid(const Grid& grid, cudaStream_t stream) {
  std::shared_ptr<const void> call(grid.call, grid.drop);
  return Api("cudaLaunchKernel", [&] {
    cudaError_t error = CheckLaunch(grid);
    if (error != cudaSuccess) return error;
    if (cudaStream_t known = StreamOf(stream)) {
      CountStream(grid.kernel, known->number);
    }
    return Enqueue(stream, {.what = FunctionName(grid.kernel),
                            .type = cudaGraphNodeTypeKernel,
                            .run = [grid, call] { RunGrid(grid); }});
  });
}

}  // namespace onnx_fp8::emulation
