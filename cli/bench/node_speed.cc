// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/node_speed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "cli/bench/timing.h"
#include "providers/plan/plan_workspace.h"

namespace onnx_fp8 {
namespace {

// Seconds of work for each time that the host waits.
constexpr double kBetweenWaits = 0.005;
constexpr double kMostRuns = 1000;  // between waits

// Work that a provider does again and again. It records the work if it can.
class RepeatedWork {
 public:
  RepeatedWork(ExecutionProvider& provider, std::function<void()> work)
      : provider_(provider), work_(std::move(work)) {
    work_();  // it may allocate, which a recording can't do
    if (provider_.CanRecord()) recording_ = provider_.Record(work_);
  }

  // Starts the work, which the provider may do later.
  void Run() {
    if (recording_) {
      recording_->Replay();
    } else {
      work_();
    }
  }

  // Runs the work for at least `least` seconds.
  NodeTime Time(double least) {
    provider_.Synchronize();
    double once = SecondsOf([&] {
      Run();
      provider_.Synchronize();
    });
    double runs = std::clamp(std::ceil(kBetweenWaits / once), 1.0, kMostRuns);
    std::vector<double> times = Times(
        [&] {
          for (double i = 0; i < runs; ++i) Run();
          provider_.Synchronize();
        },
        least);
    return {.seconds = Median(times) / runs,
            .runs = static_cast<int64_t>(runs) *
                    static_cast<int64_t>(times.size())};
  }

 private:
  ExecutionProvider& provider_;
  std::function<void()> work_;
  std::unique_ptr<Recording> recording_;
};

// The kernel of a node, with operands and results in the provider's memory. It
// runs `calls` times, each time with operands and results of its own.
class NodeRun {
 public:
  NodeRun(const Node& node, ExecutionProvider& provider, int64_t calls = 1)
      : node_(node),
        provider_(provider),
        entry_(*provider.Kernels().Find(node.domain, node.op)) {
    for (int64_t i = 0; i < calls; ++i) calls_.push_back(NewCall(i));
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
    work_.emplace(provider, [this] {
      for (Call& call : calls_) RunKernel(call);
    });
  }

  RepeatedWork& work() { return *work_; }

  // Result i of the first call.
  Tensor Result(size_t i) {
    return ConvertTo(provider_.ToHost(calls_[0].outputs[i]), DType::kFloat);
  }

 private:
  struct Call {
    std::vector<Tensor> inputs, outputs;
  };

  // The first call reads the node's own constants if they lie in the provider's
  // memory. Later calls read copies.
  Call NewCall(int64_t number) {
    Call call;
    for (size_t i = 0; i < node_.inputs().size(); ++i) {
      const Tensor& data = node_.in(i)->data;
      bool on_host = std::ranges::count(entry_.traits.host_inputs, i) > 0;
      call.inputs.push_back(on_host       ? data
                            : number == 0 ? provider_.ToOurs(data)
                                          : provider_.Clone(data));
    }
    for (const Value* value : node_.outputs()) {
      call.outputs.push_back(
          provider_.NewTensor(StoredAs(*value), *value->shape));
    }
    return call;
  }

  void RunKernel(Call& call) {
    KernelContext context(node_, call.inputs, call.outputs);
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
  std::vector<Call> calls_;
  Tensor draw_;       // of a kernel that draws
  Tensor cells_;      // own_amaxes
  Tensor workspace_;  // of one call after the other
  std::optional<RepeatedWork> work_;
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

NodeTime TimeNode(const Node& node, ExecutionProvider& provider, double least,
                  int64_t calls) {
  return NodeRun(node, provider, calls).work().Time(least);
}

NodeTime TimeCopy(double bytes, ExecutionProvider& provider, double least) {
  int64_t half = std::max<int64_t>(1, std::llround(bytes / 2));
  Tensor from = provider.NewTensor(DType::kUInt8, {half});
  Tensor to = provider.NewTensor(DType::kUInt8, {half});
  provider.Clear(from);
  auto copy = [&] {
    if (provider.device() != Device::kHost) return provider.Copy(from, to);
    // All threads copy, as they do in kernels of the CPU.
    ParallelFor(half, (half + NumThreads() - 1) / NumThreads(),
                [&](int64_t first, int64_t last) {
                  std::memcpy(to.data<uint8_t>() + first,
                              from.data<uint8_t>() + first,
                              static_cast<size_t>(last - first));
                });
  };
  return RepeatedWork(provider, copy).Time(least);
}

double Difference(const Node& node, ExecutionProvider& provider,
                  ExecutionProvider& truth) {
  NodeRun ours(node, provider), theirs(node, truth);
  ours.work().Run();
  theirs.work().Run();
  double largest = 0;
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    largest = std::max(largest, Difference(ours.Result(i), theirs.Result(i)));
  }
  return largest;
}

}  // namespace onnx_fp8
