// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <vector>

#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/math/isa.h"

namespace onnx_fp8 {
namespace {

const GemmKernels& FloatKernelsFor(Isa isa) {
  if constexpr (kHasX86Isas) {
    if (isa >= Isa::kAvx512) return kGemmAvx512;
    if (isa == Isa::kAvx2) return kGemmAvx2;
  }
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

// One block of ones whose operands are in the cache.
class TimedBlock {
 public:
  explicit TimedBlock(const GemmKernels& kernels)
      : kernels_(kernels),
        a_(Ones(kernels.a_layout, kernels.rows)),
        b_(Ones(kernels.b_layout, kernels.columns)),
        c_(kSide * kSide) {}

  double Seconds() {
    GemmBlock block = {
        .m = kSide,
        .n = kSide,
        .depth = kDepth,
        .a = a_.data(),
        .b = b_.data(),
        .b_panel = kernels_.columns * kDepth *
                   static_cast<int64_t>(PanelElementBytes(kernels_.b_layout)),
        .c = c_.data(),
        .ldc = kSide,
        .add = false,
        .last = false,
        .scale = 1,
        .bias = nullptr};
    double begin = ComputedSeconds();
    kernels_.block(block);
    return std::max(1e-9, ComputedSeconds() - begin);
  }

 private:
  // Whole tiles of every kernel.
  static constexpr int64_t kSide = 112, kDepth = 256;

  static std::vector<char> Ones(PanelLayout layout, int64_t width) {
    std::vector<uint16_t> ones(kSide * kDepth, 0x3F80);
    std::vector<char> panels(PanelBytes(layout, width, kSide, kDepth));
    PackPanels(layout, width, {ones.data(), DType::kBFloat16, kDepth, false},
               kSide, kDepth, panels.data());
    return panels;
  }

  const GemmKernels& kernels_;
  std::vector<char> a_, b_;
  std::vector<float> c_;
};

// The time of `y` divided by the time of `x`. The two run in turns, and the
// function returns the median of the turns' ratios. Another program can change
// the median only if it slows the same one of the two in half of the turns.
// Only x86-64 has a choice.
[[maybe_unused]] double SpeedRatio(const GemmKernels& x, const GemmKernels& y) {
  constexpr size_t kTurns = 21;
  TimedBlock block_x(x), block_y(y);
  std::array<double, kTurns> ratios;
  for (double& ratio : ratios) {
    double seconds_y = block_y.Seconds();
    ratio = seconds_y / block_x.Seconds();
  }
  std::nth_element(ratios.begin(), ratios.begin() + kTurns / 2, ratios.end());
  return ratios[kTurns / 2];
}

// Some CPUs run vdpbf16ps no faster than fp32, or emulate it. Results depend on
// the choice, so a margin keeps noise in the measurement from deciding it.
const GemmKernels& FastestFor(Isa isa) {
  const GemmKernels* best = &FloatKernelsFor(isa);
  if constexpr (kHasX86Isas) {
    constexpr double kMargin = 1.3;
    for (auto [needs, kernels] : {std::pair{Isa::kAvx512Bf16, &kGemmAvx512Bf16},
                                  std::pair{Isa::kAmx, &kGemmAmx}}) {
      if (isa < needs) break;
      if (SpeedRatio(*kernels, *best) > kMargin) best = kernels;
    }
  }
  return *best;
}

}  // namespace

const GemmKernels& FloatKernels() { return FloatKernelsFor(ActiveIsa()); }

const GemmKernels& Bf16Kernels() {
  if (!IsaIsForced()) {
    static const GemmKernels& fastest = FastestFor(ActiveIsa());
    return fastest;
  }
  if constexpr (kHasX86Isas) {
    if (ActiveIsa() == Isa::kAmx) return kGemmAmx;
    if (ActiveIsa() == Isa::kAvx512Bf16) return kGemmAvx512Bf16;
  }
  return FloatKernels();
}

}  // namespace onnx_fp8
