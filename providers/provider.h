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

// The place where a plan runs: kernels and memory. One provider per plan.
class ExecutionProvider {
 public:
  virtual ~ExecutionProvider() = default;

  virtual std::string Name() const = 0;
  virtual ProviderInfo Describe() const { return {}; }
  // Takes less than a second, on the whole machine; 0: not known.
  virtual MachinePeaks MeasurePeaks() { return {}; }
  virtual const KernelRegistry& Kernels() const = 0;
  // At least 64-byte aligned. Errors: out of memory.
  virtual std::shared_ptr<void> Allocate(size_t bytes) = 0;
  // REQUIRES: the same dtype and shape. Host ↔ provider memory.
  virtual void CopyIn(const Tensor& host, Tensor& ours) = 0;
  virtual void CopyOut(const Tensor& ours, Tensor& host) = 0;
  // Waits for all kernels that were started.
  virtual void Synchronize() = 0;
};

}  // namespace onnx_fp8
