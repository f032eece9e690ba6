// SPDX-License-Identifier: Apache-2.0
//
// What code calls that is compiled with -fsanitize=thread,alignment,bounds, in
// place of the sanitizers' libraries; and accesses that the compiler does not
// see: atomics and cp.async.
#include <cstdint>
#include <cstring>

#include "tests/cuda/emulation/access_checks.h"
#include "tests/cuda/emulation/block_state.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"

// The address of the call, not of what follows it.
#define ONNX_FP8_CALLER \
  (static_cast<const char*>(__builtin_return_address(0)) - 1)

namespace onnx_fp8::emulation {

void NoteAtomic(const void* p, size_t bytes) {
  if (!Checked()) return;
  CheckAccess({.address = p,
               .bytes = bytes,
               .alignment = bytes,
               .reads = true,
               .writes = true,
               .atomic = true,
               .code = ONNX_FP8_CALLER});
}

void FinishCopies(DeviceThread& thread, size_t groups) {
  auto& copies = thread.copies;
  size_t done = 0;
  for (; done < copies.size() && copies[done].group < groups; ++done) {
    const AsyncCopy& copy = copies[done];
    size_t bytes = copy.bytes - copy.zeros;
    std::memcpy(copy.to, copy.from, bytes);
    std::memset(static_cast<char*>(copy.to) + bytes, 0, copy.zeros);
  }
  copies.erase(copies.begin(),
               copies.begin() + static_cast<std::ptrdiff_t>(done));
}

namespace {

bool IsAligned(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

void CheckAsyncCopy(const AsyncCopy& copy, const void* code) {
  size_t bytes = copy.bytes;
  bool fits = (bytes == 4 || bytes == 8 || bytes == 16) && copy.zeros <= bytes;
  if (!fits || !IsAligned(copy.to, bytes) || !IsAligned(copy.from, bytes)) {
    Report(WhereInKernel(), ": cp.async of ", bytes,
           " bytes that are not aligned");
    Fault(cudaErrorMisalignedAddress);
  }
  if (!Checked()) return;
  CheckAccess({copy.from, bytes - copy.zeros, bytes, true, false, false, code});
  CheckAccess({copy.to, bytes, bytes, false, true, false, code});
}

// What the compiler passes begins with a place in the source.
struct Place {
  const char* file;
  uint32_t line, column;
};

}  // namespace
}  // namespace onnx_fp8::emulation

void __pipeline_memcpy_async(void* to, const void* from, size_t bytes,
                             size_t zeros) {
  using namespace onnx_fp8::emulation;
  DeviceThread& me = *block.current;
  AsyncCopy copy = {to, from, bytes, zeros, me.groups};
  CheckAsyncCopy(copy, ONNX_FP8_CALLER);
  std::memset(to, 0xFF, bytes);  // NaN
  me.copies.push_back(copy);
}

void __pipeline_commit() { ++onnx_fp8::emulation::block.current->groups; }

void __pipeline_wait_prior(size_t groups) {
  using namespace onnx_fp8::emulation;
  DeviceThread& me = *block.current;
  if (me.groups > groups) FinishCopies(me, me.groups - groups);
}

// Builds with the real sanitizers have their libraries.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define ONNX_FP8_HOOK(name, size, align, is_read, is_write, is_atomic)    \
  void __tsan_##name(void* p) {                                           \
    CheckAccess(                                                          \
        {p, size, align, is_read, is_write, is_atomic, ONNX_FP8_CALLER}); \
  }
#define ONNX_FP8_HOOKS(size)                                               \
  ONNX_FP8_HOOK(read##size, size, size, true, false, false)                \
  ONNX_FP8_HOOK(write##size, size, size, false, true, false)               \
  ONNX_FP8_HOOK(unaligned_read##size, size, 1, true, false, false)         \
  ONNX_FP8_HOOK(unaligned_write##size, size, 1, false, true, false)        \
  ONNX_FP8_HOOK(volatile_read##size, size, size, true, false, true)        \
  ONNX_FP8_HOOK(volatile_write##size, size, size, false, true, true)       \
  ONNX_FP8_HOOK(unaligned_volatile_read##size, size, 1, true, false, true) \
  ONNX_FP8_HOOK(unaligned_volatile_write##size, size, 1, false, true, true)

namespace onnx_fp8::emulation {
extern "C" {

void __tsan_init() { BeginChecks(); }

void __tsan_vptr_update(void**, void*) {}

// Called by std::shared_ptr in host code of .cu files.
int __tsan_atomic32_fetch_add(volatile int* p, int value, int order) {
  (void)order;
  return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}

void __tsan_read_range(void* p, size_t bytes) {
  CheckAccess({p, bytes, 1, true, false, false, ONNX_FP8_CALLER});
}

void __tsan_write_range(void* p, size_t bytes) {
  CheckAccess({p, bytes, 1, false, true, false, ONNX_FP8_CALLER});
}

ONNX_FP8_HOOKS(1)
ONNX_FP8_HOOKS(2)
ONNX_FP8_HOOKS(4)
ONNX_FP8_HOOKS(8)
ONNX_FP8_HOOKS(16)

// The compiler splits vectors before the hooks above come in, so that these see
// their alignment.
void __ubsan_handle_type_mismatch_v1(Place* at, uintptr_t p) {
  Report("a pointer is not aligned to its type: ",
         Describe(reinterpret_cast<void*>(p)), ", ", at->file, ":", at->line);
  if (InKernel()) Fault(cudaErrorMisalignedAddress);
}

void __ubsan_handle_out_of_bounds(Place* at, uintptr_t index) {
  Report("index ", static_cast<std::ptrdiff_t>(index),
         " is outside its array, ", at->file, ":", at->line);
  if (InKernel()) Fault(cudaErrorIllegalAddress);
}

}  // extern "C"
}  // namespace onnx_fp8::emulation

#endif
