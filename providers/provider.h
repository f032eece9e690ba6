// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "onnx_fp8/profile_report.h"
#include "onnx_fp8/tensor.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Facts for people and reports.
struct ProviderInfo {
  std::string isa;   // instruction set: "avx512bf16"
  std::string gemm;  // the kernels that compute matrix products
};

// Where a plan runs: kernels and memory. One provider per plan.
//
// A provider may work later than it is told to. Kernels and copies take effect
// in the order of the calls; memory that is given back while work that uses it
// is outstanding stays until that work is done. What CopyOut and ToHost return
// is there when they return.
class ExecutionProvider {
 public:
  virtual ~ExecutionProvider() = default;

  virtual std::string Name() const = 0;
  virtual ProviderInfo Describe() const { return {}; }
  // Takes less than a second, on the whole machine; 0: not known.
  virtual MachinePeaks MeasurePeaks() { return {}; }
  virtual const KernelRegistry& Kernels() const = 0;

  // Where its memory lies. That of kHost is like any other memory of the
  // process, and its kernels and copies are done when the calls return.
  virtual Device device() const { return Device::kHost; }
  // At least 64-byte aligned. Errors: out of memory.
  virtual std::shared_ptr<void> Allocate(size_t bytes) = 0;
  // REQUIRE: the same dtype and shape. From the host, to it, and between two
  // places of ours. `host` may be given back or overwritten after CopyIn.
  virtual void CopyIn(const Tensor& host, Tensor& ours) = 0;
  virtual void CopyOut(const Tensor& ours, Tensor& host) = 0;
  virtual void Copy(const Tensor& from, Tensor& to) = 0;
  // What kernels put their work into (KernelContext::queue), such as a CUDA
  // stream; null: they work at once.
  virtual void* queue() { return nullptr; }
  // Waits for all that was started. Errors: what went wrong in it.
  virtual void Synchronize() = 0;

  // A tensor of uninitialized memory of ours. Errors: out of memory.
  Tensor NewTensor(DType dtype, const Shape& shape);
  // A copy of `any`, which lies on the host or with us, in new memory of ours.
  Tensor Clone(const Tensor& any);
  // The same contents in our memory, and in the host's. They share the bytes
  // of `any` where it lies there already.
  Tensor ToOurs(const Tensor& any);
  Tensor ToHost(const Tensor& any);
  // Overwrites `ours`. REQUIRES: the same dtype and shape.
  void Assign(const Tensor& any, Tensor& ours);
};

}  // namespace onnx_fp8
