// SPDX-License-Identifier: Apache-2.0
//
// The program's own `new`: std::bad_alloc does not tell how many bytes were
// wanted, and throwing it takes memory, too.
#include "cli/operator_new.h"

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <typeinfo>

#include "base/out_of_memory.h"

// AddressSanitizer has its own `new`. GCC shows it by a macro, Clang by a
// feature.
#if defined(__SANITIZE_ADDRESS__)
#define ONNX_FP8_OWN_NEW 0
#elif defined(__has_feature)
#define ONNX_FP8_OWN_NEW !__has_feature(address_sanitizer)
#else
#define ONNX_FP8_OWN_NEW 1
#endif

#if ONNX_FP8_OWN_NEW
namespace {

std::atomic<size_t> failed_bytes = 0;
std::terminate_handler otherwise = nullptr;

void Print(const char* text) {
  // There is nobody left to tell that the text can't be written.
  static_cast<void>(!write(STDERR_FILENO, text, std::strlen(text)));
}

// Ends the program if nothing catches std::bad_alloc: before main, or when
// there is no memory to throw it. Other exceptions end as usual, even if memory
// was short before.
void EndOutOfMemory() {
  const std::type_info* thrown = abi::__cxa_current_exception_type();
  bool memory = !thrown || *thrown == typeid(std::bad_alloc);
  if (failed_bytes == 0 || !memory) otherwise();
  Print("onnx-fp8: ");
  Print(onnx_fp8::OutOfMemoryText(failed_bytes).text);
  Print("\n");
  _exit(1);
}

// Runs before all code that asks for memory.
[[gnu::constructor(101)]] void Prepare() {
  onnx_fp8::KeepReserve();
  otherwise = std::set_terminate(EndOutOfMemory);
}

void* Allocate(size_t bytes, size_t alignment) {
  bytes = bytes > 0 ? bytes : 1;
  size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  bool ordinary = alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;
  void* data =
      ordinary ? std::malloc(bytes) : std::aligned_alloc(alignment, rounded);
  if (data) return data;
  onnx_fp8::FreeReserve();
  failed_bytes = bytes;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}

void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept {
  std::free(data);
}
#endif

namespace onnx_fp8 {

#if ONNX_FP8_OWN_NEW
size_t BytesOfFailedNew() { return failed_bytes; }
#else
size_t BytesOfFailedNew() { return 0; }
#endif

}  // namespace onnx_fp8
