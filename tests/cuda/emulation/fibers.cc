// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/fibers.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/check.h"

#if !defined(__x86_64__)
#error "the switch of stacks is written for x86-64"
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Stores the registers that a function must keep, and the stack pointer in
// *from; then loads them from `to`.
extern "C" void onnx_fp8_switch_stack(void** from, void* to);

asm(R"(
.text
.globl onnx_fp8_switch_stack
.hidden onnx_fp8_switch_stack
.type onnx_fp8_switch_stack, @function
onnx_fp8_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size onnx_fp8_switch_stack, .-onnx_fp8_switch_stack
)");

namespace onnx_fp8::emulation {
namespace {

constexpr size_t kStackBytes = 128 << 10, kGuard = 4096;
constexpr size_t kPieceBytes = kGuard + kStackBytes;
constexpr int kSavedRegisters = 6;

Context* left = nullptr;
bool crosses = false;  // the last switch: from host to device, or back

void Arrive([[maybe_unused]] void* fake_stack) {
  if (!crosses) return;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &left->bottom, &left->bytes);
#endif
}

}  // namespace

void SwitchContext(Context& from, Context& to) {
  left = &from;
  crosses = from.bottom != to.bottom;
#if defined(__SANITIZE_ADDRESS__)
  if (crosses) {
    __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
  }
#endif
  onnx_fp8_switch_stack(&from.stack_pointer, to.stack_pointer);
  Arrive(from.fake_stack);
}

void ArriveOnNewStack() { Arrive(nullptr); }

Stacks::Stacks(size_t most, void (*main)()) : most_(most), main_(main) {
  void* p = mmap(nullptr, most * kPieceBytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  Check(p != MAP_FAILED, "no memory for the stacks of an emulated block");
  memory_ = static_cast<char*>(p);
}

Stack* Stacks::Take() {
  if (idle_.empty()) {
    Check(stacks_.size() < most_, "expected at most ", most_,
          " stacks in an emulated block");
    size_t below = most_ - stacks_.size() - 1;
    char* bottom = memory_ + below * kPieceBytes + kGuard;
    mprotect(bottom, kStackBytes, PROT_READ | PROT_WRITE);
    stacks_.push_back({{}, bottom});
    Prepare(stacks_.size() - 1);
    idle_.push_back(&stacks_.back());
  }
  Stack* stack = idle_.back();
  idle_.pop_back();
  return stack;
}

void Stacks::StartOver() {
  idle_.clear();
  for (size_t i = 0; i < stacks_.size(); ++i) {
    Prepare(i);
    idle_.push_back(&stacks_[i]);
  }
}

std::optional<size_t> Stacks::PlaceOf(const void* p) const {
  size_t at =
      reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(memory_);
  size_t end = most_ * kPieceBytes;
  if (at < end - stacks_.size() * kPieceBytes || at >= end) return std::nullopt;
  return at % kPieceBytes;
}

bool Stacks::Hold(const void* p) const { return PlaceOf(p) >= kGuard; }

bool Stacks::InGuard(const void* p) const {
  std::optional<size_t> place = PlaceOf(p);
  return place && *place < kGuard;
}

void Stacks::Prepare(size_t i) {
  Stack& stack = stacks_[i];
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack.bottom, kStackBytes);
#endif
  // Tops lie in different sets of the cache.
  char* top = stack.bottom + kStackBytes - i * 320 % 4096;
  auto p = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~15ul);
  *--p = nullptr;  // where a caller would be
  *--p = reinterpret_cast<void*>(main_);
  for (int r = 0; r < kSavedRegisters; ++r) *--p = nullptr;
  stack.context = {p, memory_, most_ * kPieceBytes, nullptr};
}

}  // namespace onnx_fp8::emulation
