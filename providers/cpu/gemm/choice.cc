// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/math/isa.h"

namespace onnx_fp8 {
namespace {

const GemmKernels& FloatKernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kGemmAvx512;
  if (isa == Isa::kAvx2) return kGemmAvx2;
#endif
  return kGemmPortable;
}

// Seconds that this thread has computed: a thread that loses its core to
// another program meanwhile seems no slower.
double ComputedSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Multiplications per second of one block of ones whose operands are in the
// cache; the best of several tries.
double Speed(const GemmKernels& kernels) {
  constexpr int64_t kSide = 112, kDepth = 256;  // whole tiles of every kernel
  std::vector<uint16_t> ones(kSide * kDepth, 0x3F80);
  std::vector<float> c(kSide * kSide);
  auto pack = [&](PanelLayout layout, int64_t width) {
    std::vector<char> panels(PanelBytes(layout, width, kSide, kDepth));
    PackPanels(layout, width, {ones.data(), DType::kBFloat16, kDepth, false},
               kSide, kDepth, panels.data());
    return panels;
  };
  auto a = pack(kernels.a_layout, kernels.rows);
  auto b = pack(kernels.b_layout, kernels.columns);
  GemmBlock block = {
      .m = kSide,
      .n = kSide,
      .depth = kDepth,
      .a = a.data(),
      .b = b.data(),
      .b_panel = kernels.columns * kDepth *
                 static_cast<int64_t>(PanelElementBytes(kernels.b_layout)),
      .c = c.data(),
      .ldc = kSide,
      .add = false,
      .last = false,
      .scale = 1,
      .bias = nullptr};
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 10; ++i) {
    double begin = ComputedSeconds();
    kernels.block(block);
    best = std::min(best, ComputedSeconds() - begin);
  }
  return static_cast<double>(kSide * kSide * kDepth) / std::max(1e-9, best);
}

// Some CPUs run vdpbf16ps no faster than fp32, or emulate it. Results depend on
// the choice, so a margin keeps noise in the measurement from deciding it.
const GemmKernels& FastestFor(Isa isa) {
  constexpr double kMargin = 1.3;
  const GemmKernels* best = &FloatKernelsFor(isa);
#if defined(__x86_64__)
  double speed = Speed(*best);
  for (auto [needs, kernels] : {std::pair{Isa::kAvx512Bf16, &kGemmAvx512Bf16},
                                std::pair{Isa::kAmx, &kGemmAmx}}) {
    if (isa < needs) break;
    double own = Speed(*kernels);
    if (own > kMargin * speed) {
      best = kernels;
      speed = own;
    }
  }
#endif
  return *best;
}

}  // namespace

const GemmKernels& FloatKernels() { return FloatKernelsFor(ActiveIsa()); }

const GemmKernels& Bf16Kernels() {
  if (!IsaIsForced()) {
    static const GemmKernels& fastest = FastestFor(ActiveIsa());
    return fastest;
  }
#if defined(__x86_64__)
  if (ActiveIsa() == Isa::kAmx) return kGemmAmx;
  if (ActiveIsa() == Isa::kAvx512Bf16) return kGemmAvx512Bf16;
#endif
  return FloatKernels();
}

}  // namespace onnx_fp8
