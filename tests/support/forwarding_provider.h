// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "providers/provider.h"

namespace onnx_fp8 {

// Another provider with kernels of its own.
class ForwardingProvider : public ExecutionProvider {
 public:
  explicit ForwardingProvider(std::unique_ptr<ExecutionProvider> other)
      : other_(std::move(other)) {}
  std::string Name() const override { return other_->Name(); }
  const KernelRegistry& Kernels() const override { return kernels_; }
  Device device() const override { return other_->device(); }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    return other_->Allocate(bytes);
  }
  void CopyIn(const Tensor& host, Tensor& ours) override {
    other_->CopyIn(host, ours);
  }
  void CopyOut(const Tensor& ours, Tensor& host) override {
    other_->CopyOut(ours, host);
  }
  void Copy(const Tensor& from, Tensor& to) override { other_->Copy(from, to); }
  void Clear(Tensor& ours) override { other_->Clear(ours); }
  void* queue() override { return other_->queue(); }
  void Synchronize() override { other_->Synchronize(); }
  SideQueue* side_queue(Side side) override { return other_->side_queue(side); }

 protected:
  KernelRegistry kernels_;

 private:
  std::unique_ptr<ExecutionProvider> other_;
};

}  // namespace onnx_fp8
