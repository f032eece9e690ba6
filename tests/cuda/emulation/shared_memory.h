// SPDX-License-Identifier: Apache-2.0
//
// The shared memory of the block that runs. Only one block runs at a time.
#pragma once

#include <cstddef>

namespace onnx_fp8::emulation {

// All static shared variables of all kernels (shared_memory.ld).
char* SharedBegin();
char* SharedEnd();

// The dynamic part ends at a guard page.
inline constexpr size_t kMaxDynamicShared = 227 << 10;
char* DynamicBegin();
char* DynamicEnd();
// Whether p lies in the dynamic part of any block, or in the guards around.
bool IsDynamicShared(const void* p);

// Fills all of it with NaN, and makes the dynamic part so large.
void ResetShared(size_t dynamic_bytes);

}  // namespace onnx_fp8::emulation
