// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/isa.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/check.h"

namespace onnx_fp8 {
namespace {

constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                         Isa::kAvx512Bf16, Isa::kAmx};

#if defined(__x86_64__)
// The four registers that CPUID returns for a leaf; zeros if the CPU lacks it.
struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;

  explicit Leaf(unsigned number, unsigned part = 0) {
    __get_cpuid_count(number, part, &a, &b, &c, &d);
  }
};

bool HasBits(unsigned word, std::initializer_list<int> bits) {
  return std::ranges::all_of(bits, [=](int i) { return word >> i & 1; });
}

// The registers that Linux saves when it changes threads, as XCR0 has them.
unsigned SavedRegisters() {
  if (!HasBits(Leaf(1).c, {27})) return 0;  // no XGETBV
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// A process must ask Linux before it uses AMX tiles; asking again is free.
bool AmxAllowed() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// __builtin_cpu_supports would not do: its table stays empty in a program that
// zig links, and Clang 16 does not know F16C by name.
bool Detect(Isa isa) {
  Leaf features(7);
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:  // the low and high halves of registers; FMA, F16C; AVX2
      return HasBits(SavedRegisters(), {1, 2}) &&
             HasBits(Leaf(1).c, {12, 29}) && HasBits(features.b, {5});
    case Isa::kAvx512:  // masks and registers; F, DQ, BW, VL; VBMI
      return Detect(Isa::kAvx2) && HasBits(SavedRegisters(), {5, 6, 7}) &&
             HasBits(features.b, {16, 17, 30, 31}) && HasBits(features.c, {1});
    case Isa::kAvx512Bf16:
      return Detect(Isa::kAvx512) && HasBits(Leaf(7, 1).a, {5});
    case Isa::kAmx:  // tiles; AMX-BF16, AMX-TILE
      return Detect(Isa::kAvx512Bf16) && HasBits(SavedRegisters(), {17, 18}) &&
             HasBits(features.d, {22, 24}) && AmxAllowed();
  }
  return false;
}
#else
bool Detect(Isa isa) { return isa == Isa::kPortable; }
#endif

Isa Best() {
  Isa best = Isa::kPortable;
  for (Isa isa : kIsas) {
    if (Detect(isa)) best = isa;
  }
  return best;
}

Isa BestOnce() {
  static const Isa best = Best();
  return best;
}

std::atomic<int> forced = -1;

}  // namespace

bool HasIsa(Isa isa) { return isa <= BestOnce(); }

Isa ActiveIsa() {
  int isa = forced.load(std::memory_order_relaxed);
  return isa < 0 ? BestOnce() : static_cast<Isa>(isa);
}

std::span<const Isa> AllIsas() {
  return std::span(kIsas).first(kHasX86Isas ? std::size(kIsas) : 1);
}

const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
    case Isa::kAmx:
      return "amx";
    default:
      return "portable";
  }
}

void ForceIsa(std::string_view name) {
  if (name == "auto") {
    forced = -1;
    return;
  }
  std::string here = "auto";
  for (Isa isa : kIsas) {
    if (!HasIsa(isa)) break;
    if (name == Name(isa)) {
      forced = static_cast<int>(isa);
      return;
    }
    here += std::string(", ") + Name(isa);
  }
  Fail("[`isa`] expected an instruction set of this machine (", here,
       "), got '", name, "'");
}

bool IsaIsForced() { return forced >= 0; }

}  // namespace onnx_fp8
