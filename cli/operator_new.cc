// SPDX-License-Identifier: Apache-2.0
//
// The program's own `new`: std::bad_alloc does not tell how much was wanted.
#include "cli/operator_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> failed_bytes = 0;

}  // namespace

#ifndef __SANITIZE_ADDRESS__
void* operator new(size_t bytes) {
  while (true) {
    if (void* data = std::malloc(bytes > 0 ? bytes : 1)) return data;
    std::new_handler handler = std::get_new_handler();
    if (!handler) {
      failed_bytes = bytes;
      throw std::bad_alloc();
    }
    handler();
  }
}

void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
#endif

namespace onnx_fp8 {

size_t BytesOfFailedNew() { return failed_bytes; }

}  // namespace onnx_fp8
