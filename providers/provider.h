// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "onnx_fp8/profile_report.h"
#include "onnx_fp8/tensor.h"
#include "providers/activity.h"
#include "providers/kernel.h"
#include "providers/side_queue.h"

namespace onnx_fp8 {

// Facts for people and reports.
struct ProviderInfo {
  std::string isa;   // instruction set: "avx512bf16"
  std::string gemm;  // the kernels that compute matrix products
  // Products of bfloat16 are faster than products of floats.
  bool fast_bfloat16 = false;
};

// The memory of a device.
struct DeviceMemory {
  size_t free = 0, total = 0;  // bytes
};

// Work that a provider does again as a whole, such as a CUDA graph. It reads
// and writes the addresses that it was recorded with.
class Recording {
 public:
  virtual ~Recording() = default;
  // Adds the work to the queue.
  virtual void Replay() = 0;
};

// The kernels and the memory with which a plan runs. One provider per plan.
//
// A provider may queue its work and do it later. Kernels and copies take effect
// in the order of the calls. Memory that is freed while queued work uses it
// stays until that work is done. CopyOut and ToHost return only when the bytes
// are on the host.
class ExecutionProvider {
 public:
  virtual ~ExecutionProvider() = default;

  virtual std::string Name() const = 0;
  virtual ProviderInfo Describe() const { return {}; }
  // Takes less than a second, on the whole machine; 0: not known.
  virtual MachinePeaks MeasurePeaks() { return {}; }
  virtual const KernelRegistry& Kernels() const = 0;

  // The place of its memory. With kHost, memory is ordinary memory of the
  // process, and kernels and copies are done when the calls return.
  virtual Device device() const { return Device::kHost; }
  // What all processes use counts; nullopt: the memory is the host's.
  virtual std::optional<DeviceMemory> Memory() { return std::nullopt; }
  // At least 64-byte aligned, on a device 256. Errors: out of memory.
  virtual std::shared_ptr<void> Allocate(size_t bytes) = 0;
  // Memory of the host that a device's kernels and copies use as they use
  // Allocate's, at the speed of the bus. Errors: out of memory; it has no such
  // memory.
  virtual std::shared_ptr<void> AllocateOnHost(size_t bytes);
  // Copies from the host, to the host, and within our memory. REQUIRE: the same
  // dtype and shape. `host` may be freed or overwritten after CopyIn.
  virtual void CopyIn(const Tensor& host, Tensor& ours) = 0;
  virtual void CopyOut(const Tensor& ours, Tensor& host) = 0;
  virtual void Copy(const Tensor& from, Tensor& to) = 0;
  // Sets all bytes of a tensor of ours to zero.
  virtual void Clear(Tensor& ours) = 0;
  // The queue to which kernels add their work (KernelContext::queue), such as a
  // CUDA stream; null: they work at once.
  virtual void* queue() { return nullptr; }
  // null: there is none, and such work is done in the main queue.
  virtual SideQueue* side_queue(Side /*side*/) { return nullptr; }
  // Records the work that `run` adds to the queue, and does none of it. `run`
  // has run before at the same addresses, so that it allocates nothing. null:
  // this provider records nothing.
  virtual std::unique_ptr<Recording> Record(
      const std::function<void()>& /*run*/) {
    return nullptr;
  }
  virtual bool CanRecord() const { return false; }
  // The work that `run` has added to the recording so far. REQUIRES: Record is
  // calling `run`.
  virtual WorkCounts Recorded() { return {}; }
  // Records the device's activities; null: the provider was made without
  // ProviderOptions::timeline.
  virtual ActivityTrace* activities() { return nullptr; }
  // Names ranges for a tool such as Nsight Systems; null: no tool listens.
  virtual HostRanges* host_ranges() { return nullptr; }
  // Waits until all started work is done. Errors: failures of that work.
  virtual void Synchronize() = 0;

  // A tensor in our memory, not initialized. Errors: out of memory.
  Tensor NewTensor(DType dtype, const Shape& shape);
  // A copy in new memory of ours. `any` lies on the host or in our memory.
  Tensor Clone(const Tensor& any);
  // The same contents in our memory, or on the host. The result shares the
  // bytes of `any` if they are there already.
  Tensor ToOurs(const Tensor& any);
  Tensor ToHost(const Tensor& any);
  // Overwrites `ours`. REQUIRES: the same dtype and shape.
  void Assign(const Tensor& any, Tensor& ours);
};

}  // namespace onnx_fp8
