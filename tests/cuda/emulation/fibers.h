// SPDX-License-Identifier: Apache-2.0
//
// Stacks of our own, and switches between them that take a few nanoseconds.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace onnx_fp8::emulation {

// Where something that does not run now goes on.
struct Context {
  void* stack_pointer = nullptr;
  // The stack that AddressSanitizer is told of. All stacks of a Stacks are one
  // stack to it, because telling it of each switch takes as long as the switch.
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* fake_stack = nullptr;
};

// Stores where `from` is left, and goes on with `to`. Returns when something
// goes on with `from`.
void SwitchContext(Context& from, Context& to);
// What a function must call first that begins on a new stack.
void ArriveOnNewStack();

struct Stack {
  Context context;
  char* bottom = nullptr;
};

// Stacks lie side by side in one piece of memory, each behind a guard, so that
// an address tells its stack. The first stack lies at the end of the memory:
// AddressSanitizer, which sees one large stack, resets its marks for the last
// 64 MiB only.
class Stacks {
 public:
  // At most `most` stacks. Each begins with `main`, which never returns.
  Stacks(size_t most, void (*main)());

  // Errors: `most` stacks are taken.
  Stack* Take();
  void GiveBack(Stack* stack) { idle_.push_back(stack); }
  // Forgets what ran on the stacks. REQUIRES: none of them is current.
  void StartOver();

  bool Hold(const void* p) const;
  // p lies below a stack that overflows.
  bool InGuard(const void* p) const;

 private:
  void Prepare(size_t i);
  // The place of p from its guard on; nullopt: p lies in no stack and no guard.
  std::optional<size_t> PlaceOf(const void* p) const;

  size_t most_;
  void (*main_)();
  char* memory_;
  std::deque<Stack> stacks_;
  std::vector<Stack*> idle_;
};

}  // namespace onnx_fp8::emulation
