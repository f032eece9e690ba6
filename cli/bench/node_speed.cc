// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/node_speed.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "base/check.h"
#include "cli/bench/timing.h"
#include "providers/plan_workspace.h"

namespace onnx_fp8 {
namespace {

// Seconds of work for each time that the host waits.
constexpr double kBetweenWaits = 0.005;
constexpr double kMostRuns = 1000;  // between waits

// The kernel of a node, with operands and results in the provider's memory.
class NodeRun {
 public:
  NodeRun(const Node& node, ExecutionProvider& provider)
      : node_(node),
        provider_(provider),
        entry_(*provider.Kernels().Find(node.domain, node.op)) {
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const Tensor& data = node.in(i)->data;
      bool on_host = std::ranges::count(entry_.traits.host_inputs, i) > 0;
      inputs_.push_back(on_host ? data : provider.ToOurs(data));
    }
    for (const Value* value : node.outputs()) {
      outputs_.push_back(provider.NewTensor(StoredAs(*value), *value->shape));
    }
    if (entry_.traits.draws) {
      draw_ = provider.Clone(Tensor::Scalar(uint64_t{0}));
    }
    if (size_t cells = entry_.traits.own_amaxes) {
      auto bytes = static_cast<int64_t>(cells * sizeof(AmaxCell));
      cells_ = provider.NewTensor(DType::kUInt8, {bytes});
    }
    if (auto needed = WorkspaceFor(node, entry_.traits, provider.queue())) {
      workspace_ = provider.NewTensor(needed->dtype, *needed->shape);
    }
    RunKernel();  // it may allocate, which a recording can't do
    if (provider.CanRecord()) {
      recording_ = provider.Record([this] { RunKernel(); });
    }
  }

  // The provider may do it later.
  void Run() {
    if (recording_) {
      recording_->Replay();
    } else {
      RunKernel();
    }
  }

  Tensor Result(size_t i) {
    return ConvertTo(provider_.ToHost(outputs_[i]), DType::kFloat);
  }

 private:
  void RunKernel() {
    KernelContext context(node_, inputs_, outputs_);
    context.set_queue(provider_.queue());
    context.set_workspace(workspace_);
    context.set_draw_on_device(static_cast<const uint64_t*>(draw_.raw()));
    if (cells_.defined()) {
      provider_.Clear(cells_);
      context.SetAmaxes(nullptr, {}, static_cast<AmaxCell*>(cells_.raw()));
    }
    entry_.kernel(context);
  }

  const Node& node_;
  ExecutionProvider& provider_;
  const KernelEntry& entry_;
  std::vector<Tensor> inputs_, outputs_;
  Tensor draw_;   // of a kernel that draws
  Tensor cells_;  // own_amaxes
  Tensor workspace_;
  std::unique_ptr<Recording> recording_;
};

double Difference(const Tensor& x, const Tensor& truth) {
  double largest = 0, difference = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    double a = x.data<float>()[i], b = truth.data<float>()[i];
    if (std::isfinite(b)) largest = std::max(largest, std::fabs(b));
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      return std::numeric_limits<double>::infinity();
    }
    difference = std::max(difference, std::fabs(a - b));
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace

NodeTime TimeNode(const Node& node, ExecutionProvider& provider, double least) {
  NodeRun run(node, provider);
  provider.Synchronize();
  double once = SecondsOf([&] {
    run.Run();
    provider.Synchronize();
  });
  double runs = std::clamp(std::ceil(kBetweenWaits / once), 1.0, kMostRuns);
  std::vector<double> times = Times(
      [&] {
        for (double i = 0; i < runs; ++i) run.Run();
        provider.Synchronize();
      },
      least);
  return {
      .seconds = Median(times) / runs,
      .runs = static_cast<int64_t>(runs) * static_cast<int64_t>(times.size())};
}

double Difference(const Node& node, ExecutionProvider& provider,
                  ExecutionProvider& truth) {
  NodeRun ours(node, provider), theirs(node, truth);
  ours.Run();
  theirs.Run();
  double largest = 0;
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    largest = std::max(largest, Difference(ours.Result(i), theirs.Result(i)));
  }
  return largest;
}

}  // namespace onnx_fp8
