// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/cpu_provider.h"

#include <cstring>

#include "base/check.h"
#include "graph/op_facts.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/gemm/peak.h"
#include "providers/cpu/math/bandwidth.h"
#include "providers/cpu/math/isa.h"
#include "providers/kernel.h"
#include "providers/run/progress_thread.h"

namespace onnx_fp8 {

void RegisterAll(KernelRegistry& r);  // cmake/registers.cmake writes it

namespace {

class CpuProvider : public ExecutionProvider {
 public:
  std::string Name() const override { return "cpu"; }
  ProviderInfo Describe() const override {
    return {onnx_fp8::Name(ActiveIsa()), GemmBackend(),
            Bf16Kernels().a_layout != PanelLayout::kFloat};
  }
  MachinePeaks MeasurePeaks() override {
    return {.flops = PeakFlops(FloatKernels()),
            .eight_bit_flops = PeakFlops(Bf16Kernels()),
            .bytes = PeakBandwidth()};
  }
  const KernelRegistry& Kernels() const override { return CpuKernels(); }

  std::shared_ptr<void> Allocate(size_t bytes) override {
    return AllocateBytes(bytes);
  }

  void CopyIn(const Tensor& host, Tensor& ours) override {
    if (host.bytes() > 0) std::memcpy(ours.raw(), host.raw(), host.bytes());
  }
  void CopyOut(const Tensor& ours, Tensor& host) override {
    CopyIn(ours, host);
  }
  void Copy(const Tensor& from, Tensor& to) override { CopyIn(from, to); }
  void Clear(Tensor& ours) override {
    std::memset(ours.raw(), 0, ours.bytes());
  }
  void Synchronize() override {}
  SideQueue* side_queue() override { return &progress_; }

 private:
  ProgressThread progress_;
};

class CpuEvaluator : public Evaluator {
 public:
  // A collective needs all ranks, whatever its operands are.
  bool CanEvaluate(const Node& node) const override {
    return FactsOf(node).kind != OpKind::kCollective &&
           CpuKernels().Find(node.domain, node.op) != nullptr;
  }

  std::vector<Tensor> Evaluate(
      const Node& node, const std::vector<Tensor>& inputs) const override {
    const KernelEntry* entry = CpuKernels().Find(node.domain, node.op);
    Check(entry != nullptr, "[", node.Where(), "] has no CPU kernel");
    std::vector<Tensor> outputs(node.outputs().size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Value* value = node.out(i);
      if (value && value->concrete() && ByteSize(value->dtype) > 0) {
        outputs[i] = Tensor::Allocate(value->dtype, *value->shape);
      }
    }
    KernelContext context(node, inputs, outputs);
    entry->kernel(context);
    for (size_t i = 0; i < outputs.size(); ++i) {
      Check(!node.out(i) || outputs[i].defined(), "[", node.Where(),
            "] shape of output ", i, " can't be told from the inputs");
    }
    return outputs;
  }
};

}  // namespace

std::unique_ptr<ExecutionProvider> MakeCpuProvider() {
  return std::make_unique<CpuProvider>();
}

const KernelRegistry& CpuKernels() {
  static const KernelRegistry kernels = [] {
    KernelRegistry r;
    RegisterAll(r);
    r.RequireFacts();
    return r;
  }();
  return kernels;
}

std::unique_ptr<Evaluator> MakeCpuEvaluator() {
  return std::make_unique<CpuEvaluator>();
}

}  // namespace onnx_fp8
