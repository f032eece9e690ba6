// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/shared_memory.h"

#include <sys/mman.h>

#include "base/check.h"
#include "tests/cuda/emulation/memory.h"

extern "C" {
// Weak: a program may have no kernel with static shared memory.
extern char onnx_fp8_shared_begin[] __attribute__((weak));
extern char onnx_fp8_shared_end[] __attribute__((weak));
}

namespace onnx_fp8::emulation {
namespace {

constexpr size_t kDynamicBytes = 256 << 10;
static_assert(kDynamicBytes >= kMaxDynamicShared);

char* dynamic_begin = nullptr;

// Ends at a guard page, begins behind one.
char* GuardedEnd() {
  static char* end = [] {
    void* p = mmap(nullptr, kDynamicBytes + 2 * kPage, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Check(p != MAP_FAILED, "no memory for the emulated shared memory");
    char* begin = static_cast<char*>(p) + kPage;
    mprotect(begin, kDynamicBytes, PROT_READ | PROT_WRITE);
    return begin + kDynamicBytes;
  }();
  return end;
}

// Not memset, which AddressSanitizer watches: it puts forbidden bytes between
// static variables.
void FillWithNan(char* begin, char* end) {
  auto bytes = static_cast<size_t>(end - begin);
  asm volatile("rep stosb" : "+D"(begin), "+c"(bytes) : "a"(0xFF) : "memory");
}

}  // namespace

char* SharedBegin() { return onnx_fp8_shared_begin; }
char* SharedEnd() { return onnx_fp8_shared_end; }
char* DynamicBegin() { return dynamic_begin; }
char* DynamicEnd() { return GuardedEnd(); }

bool IsDynamicShared(const void* p) {
  return p >= GuardedEnd() - kDynamicBytes - kPage && p < GuardedEnd() + kPage;
}

void ResetShared(size_t dynamic_bytes) {
  FillWithNan(SharedBegin(), SharedEnd());
  dynamic_begin = GuardedEnd() - (dynamic_bytes + 15) / 16 * 16;
  FillWithNan(dynamic_begin, GuardedEnd());
}

}  // namespace onnx_fp8::emulation
