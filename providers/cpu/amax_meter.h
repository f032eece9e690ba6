// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <new>

#include "providers/cpu/math/float8_kernels.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// The amax of operand 0; null if it is not known.
inline const Amax* KnownAmax(const KernelContext& ctx) {
  return reinterpret_cast<const Amax*>(ctx.KnownAmax());
}

// The amax of a result, measured block by block while the blocks are in the
// cache, if a reader has asked for it (KernelTraits::measures). A maximum does
// not depend on the order, so threads may add their parts in any order.
class AmaxMeter {
 public:
  AmaxMeter(KernelContext& ctx, size_t output) {
    if (AmaxCell* cell = ctx.Measured(output)) to_ = new (cell) Amax;
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
      std::lock_guard<std::mutex> lock(meter_.mutex_);
      meter_.to_->Add(seen_);
    }
    void Add(const float* x, int64_t n) {
      if (meter_.on()) seen_.Add(kernels_.amax(x, n));
    }
    // Doubles are never quantized.
    void Add(const double*, int64_t) {}

   private:
    AmaxMeter& meter_;
    const Float8Kernels& kernels_ = KernelsFor(ActiveIsa());
    Amax seen_;
  };

 private:
  Amax* to_ = nullptr;
  std::mutex mutex_;
};

}  // namespace onnx_fp8
