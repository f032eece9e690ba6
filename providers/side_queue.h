// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <iterator>

namespace onnx_fp8 {

// The kinds of work that a provider may do beside its other work, each in a
// queue of its own.
enum class Side {
  kCollectives,
  kUpdates,  // of a device: they read and write state in the host's memory
};
inline constexpr Side kAllSides[] = {Side::kCollectives, Side::kUpdates};
inline constexpr size_t kSides = std::size(kAllSides);

constexpr size_t IndexOf(Side side) { return static_cast<size_t>(side); }

// Does works one after another, beside the other work of a provider. One
// executor uses it at a time.
class SideQueue {
 public:
  virtual ~SideQueue() = default;

  // For kernels that a work calls: KernelContext::queue.
  virtual void* queue() { return nullptr; }
  // The work begins after the works before it, and after what the provider was
  // given before this call.
  virtual void Start(std::function<void()> work) = 0;
  // Later work of the provider waits for the oldest work that is not awaited
  // yet. Errors: failures of that work; the works behind a failed one are not
  // done.
  virtual void Await() = 0;
  // After an error: later work of the provider waits for all works that have
  // begun. All others are forgotten, and so are errors.
  virtual void Drop() = 0;
};

}  // namespace onnx_fp8
