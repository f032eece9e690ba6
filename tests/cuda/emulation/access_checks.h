// SPDX-License-Identifier: Apache-2.0
//
// Checks of every access that a kernel makes to memory: bounds to the byte,
// alignment, races, and reads of shared memory that nobody wrote.
//
// Checked builds compile .cu files with -fsanitize=thread,alignment,bounds.
// access_hooks.cc has the functions that the compiler then calls, in place of
// the sanitizers' own. Calls of memcpy and memset are not seen.
#pragma once

#include <cstddef>

namespace onnx_fp8::emulation {

struct Access {
  const void* address;
  size_t bytes;
  size_t alignment;
  bool reads, writes;
  bool atomic;
  const void* code;  // what makes it
};

// Notes it, or ends the kernel with a report. Outside of kernels it does
// nothing.
void CheckAccess(const Access& access);

// From now on Checked() is true.
void BeginChecks();

}  // namespace onnx_fp8::emulation
