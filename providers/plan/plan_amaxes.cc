// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/plan_amaxes.h"

#include <unordered_map>

namespace onnx_fp8 {
namespace {

class Amaxes {
 public:
  Amaxes(const KernelRegistry& kernels, Plan& plan)
      : kernels_(kernels), plan_(plan) {
    for (Step& step : plan.steps) step_of_[step.node] = &step;
  }

  void Run() {
    for (Step& step : plan_.steps) {
      const KernelTraits& traits = TraitsOf(*step.node);
      if (traits.uses_amax && step.node->in(0)) {
        step.known_amax = MeasuredBefore(step.node->in(0));
      }
      if (step.known_amax < 0 && traits.own_amaxes > 0) {
        step.own_amax = static_cast<int>(plan_.amaxes);
        plan_.amaxes += traits.own_amaxes;
      }
    }
  }

 private:
  const KernelTraits& TraitsOf(const Node& node) const {
    return kernels_.Find(node.domain, node.op)->traits;
  }

  // The step that computes x; a view passes on its input. null: no step does.
  Step* WriterOf(const Value*& x) const {
    while (x->producer) {
      auto it = step_of_.find(x->producer);
      if (it != step_of_.end()) return it->second;
      x = x->producer->in(0);
    }
    return nullptr;
  }

  // The cell in which the kernel that computes x leaves its amax; -1: it can't.
  int MeasuredBefore(const Value* x) {
    if (x->dtype != DType::kFloat) return -1;
    Step* writer = WriterOf(x);
    if (!writer || x->dtype != DType::kFloat) return -1;
    const Node& node = *writer->node;
    for (size_t output : TraitsOf(node).measures) {
      if (output >= node.outputs().size() || node.out(output) != x) continue;
      writer->measured_amax.resize(node.outputs().size(), -1);
      int& cell = writer->measured_amax[output];
      if (cell < 0) cell = static_cast<int>(plan_.amaxes++);
      return cell;
    }
    return -1;
  }

  const KernelRegistry& kernels_;
  Plan& plan_;
  std::unordered_map<const Node*, Step*> step_of_;
};

}  // namespace

void PlanAmaxes(const KernelRegistry& kernels, Plan& plan) {
  Amaxes(kernels, plan).Run();
}

}  // namespace onnx_fp8
