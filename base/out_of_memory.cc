// SPDX-License-Identifier: Apache-2.0
#include "base/out_of_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// Enough for the unwinder, which may load a library.
constexpr size_t kReserve = size_t{1} << 20;

std::atomic<void*> reserve = nullptr;

}  // namespace

OutOfMemoryText::OutOfMemoryText(size_t bytes) {
  std::snprintf(text, sizeof(text),
                "out of memory: expected %zu bytes more, got none: use smaller "
                "batches or a smaller model, or raise the limit (ulimit -v, a "
                "container's)",
                bytes);
}

// Pages that nobody writes count only against a limit on addresses.
void KeepReserve() {
  void* data = mmap(nullptr, kReserve, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data != MAP_FAILED) reserve = data;
}

void FreeReserve() {
  void* data = reserve.exchange(nullptr);
  if (data) munmap(data, kReserve);
}

void FailOutOfMemory(size_t bytes, const std::string& where) {
  FreeReserve();
  Fail(where, OutOfMemoryText(bytes).text);
}

}  // namespace onnx_fp8
