// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/isa.h"

#include <atomic>
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
// A process must ask Linux before it uses AMX tiles; asking again is free.
bool AmxAllowed() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  bool tiles = (d & (1u << 24)) != 0, bf16 = (d & (1u << 22)) != 0;
  return tiles && bf16 &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Clang 16 can't be asked for it by name.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)) != 0;
}

bool Detect(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             HasF16c();
    case Isa::kAvx512:
      return Detect(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vbmi");
    case Isa::kAvx512Bf16:
      return Detect(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16");
    case Isa::kAmx:
      return Detect(Isa::kAvx512Bf16) && AmxAllowed();
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
