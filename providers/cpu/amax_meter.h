// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <new>

#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/narrow_floats.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// The amax of operand 0; null if it is not known.
inline const Amax* KnownAmax(const KernelContext& ctx) {
  return reinterpret_cast<const Amax*>(ctx.KnownAmax());
}

// The amax of a result, measured block by block while the blocks are in the
// cache, if a reader has asked for it (KernelTraits::measures). A maximum does
// not depend on the order, so threads may add their parts in any order. If the
// result is kept in 16 bits, it is the amax of the rounded numbers: rounding
// keeps their order, so only the amax is rounded. Numbers that become infinite
// are left out before.
class AmaxMeter {
 public:
  AmaxMeter(KernelContext& ctx, size_t output) {
    if (AmaxCell* cell = ctx.Measured(output)) {
      to_ = new (cell) Amax;
      narrow_ = ctx.NarrowOut(output);
      if (narrow_ == DType::kFloat16) overflow_ = 65520.0f;
      if (narrow_ == DType::kBFloat16) overflow_ = 0x1.FFp127f;
    }
  }

  bool on() const { return to_ != nullptr; }

  // The part of one thread; it counts when the object ends.
  class Part {
   public:
    explicit Part(AmaxMeter& meter) : meter_(meter) {}
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part() {
      if (!meter_.on()) return;
      if (meter_.narrow_ != DType::kUndefined) {
        RoundFloats(meter_.narrow_, &seen_.finite, &seen_.finite, 1);
      }
      std::lock_guard<std::mutex> lock(meter_.mutex_);
      meter_.to_->Add(seen_);
    }
    void Add(const float* x, int64_t n) {
      if (!meter_.on()) return;
      Amax amax = kernels_.amax(x, n);
      if (amax.finite >= meter_.overflow_) amax = WithoutOverflow(x, n);
      seen_.Add(amax);
    }
    // Doubles are never quantized.
    void Add(const double*, int64_t) {}

   private:
    Amax WithoutOverflow(const float* x, int64_t n) const {
      Amax amax;
      for (int64_t i = 0; i < n; ++i) {
        float size = std::fabs(x[i]);
        if (size < meter_.overflow_) {
          amax.finite = std::max(amax.finite, size);
        } else {
          amax.non_finite = true;
        }
      }
      return amax;
    }

    AmaxMeter& meter_;
    const Float8Kernels& kernels_ = KernelsFor(ActiveIsa());
    Amax seen_;
  };

 private:
  Amax* to_ = nullptr;
  DType narrow_ = DType::kUndefined;
  // The least number that rounds to infinity.
  float overflow_ = std::numeric_limits<float>::infinity();
  std::mutex mutex_;
};

}  // namespace onnx_fp8
