// SPDX-License-Identifier: Apache-2.0
#include "providers/report/timeline.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "collectives/ring_cost.h"
#include "graph/flops.h"
#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

const char* WorkOf(const Node& node) {
  switch (FactsOf(node).kind) {
    case OpKind::kScaledProduct:
      return "products in FP8";
    case OpKind::kProduct:
      return ByteSize(StoredAs(*node.in(0))) == 2 ? "products in 16 bits"
                                                  : "products in float32";
    case OpKind::kAttention:
    case OpKind::kAttentionGrad:
      return "attention";
    case OpKind::kQuantize:
      return "quantizing";
    case OpKind::kParameterUpdate:
      return "optimizer";
    default:
      return "all other nodes";
  }
}

double ModelFlops(const Node& node) {
  const OpFacts& facts = FactsOf(node);
  switch (facts.kind) {
    case OpKind::kScaledProduct:
    case OpKind::kProduct:
      return facts.flops(node);
    case OpKind::kAttention:
      return 3 * facts.flops(node);
    default:
      return 0;
  }
}

class Simulation {
 public:
  Simulation(const Plan& plan, const Cluster& cluster, const Value* seed)
      : plan_(plan), cluster_(cluster) {
    for (const Step& step : plan.steps) runs_.insert(step.node);
    if (seed) backward_.insert(Root(seed));
  }

  Timeline Run() {
    bool forward = true;
    bool beside = false;  // the call runs beside other steps
    size_t joined = 0;    // steps that belong to the call before them
    for (const Step& step : plan_.steps) {
      const Node& node = *step.node;
      const bool first = joined == 0;
      if (first) {
        results_.clear();
        beside = step.beside;
        AwaitUpdates(step.AwaitsOf(Side::kUpdates));
      }
      joined = first ? step.together - 1 : joined - 1;
      double start = compute_free_;
      bool depends = false;
      for (const Value* in : node.inputs()) {
        if (!in) continue;
        const Value* root = Root(in);
        auto ready = ready_.find(root);
        if (ready != ready_.end()) start = std::max(start, ready->second);
        depends |= backward_.contains(root);
      }
      const bool sends = IsCollective(node);
      const bool updates = step.side == Side::kUpdates;
      double& free = sends     ? network_free_
                     : updates ? update_free_
                               : compute_free_;
      start = std::max(free, start);
      free = start + (sends ? Send(node, first)
                            : BesideCalls(start, Compute(node, updates)));
      forward &= !depends;
      if (forward && !sends) time_.forward = time_.compute;
      for (const Value* out : node.outputs()) {
        if (!out) continue;
        results_.push_back(out);
        if (depends) backward_.insert(out);
      }
      for (const Value* out : results_) ready_[out] = free;
      if (updates && joined == 0) {
        update_ends_.push_back(update_free_);
        if (!beside) {
          AwaitUpdates(update_ends_.size());
          update_ends_.pop_back();  // the plan does not count it
        }
      }
    }
    const double others = std::max(compute_free_, network_free_);
    time_.step = std::max(others, update_free_);
    time_.exposed_updates += time_.step - others;
    time_.exposed = time_.step - time_.compute - time_.exposed_updates;
    std::ranges::stable_sort(time_.work, std::greater<>(), &WorkTotal::seconds);
    std::ranges::stable_sort(time_.collectives, std::greater<>(),
                             &CallsTotal::seconds);
    return std::move(time_);
  }

 private:
  // The value in whose memory a view lies.
  const Value* Root(const Value* value) const {
    while (value->producer && !runs_.contains(value->producer) &&
           value->producer->in(0)) {
      value = value->producer->in(0);
    }
    return value;
  }

  // The next node waits for the first `count` calls of updates.
  void AwaitUpdates(size_t count) {
    if (count == 0 || update_ends_.at(count - 1) <= compute_free_) return;
    time_.exposed_updates += update_ends_[count - 1] - compute_free_;
    compute_free_ = update_ends_[count - 1];
  }

  // Bytes that a rank receives because of this operand, the `first` or a later
  // one of its call.
  int64_t Received(const Node& node, int64_t ranks, bool first) {
    const Value& x = *node.in(0);
    const int64_t before = first ? 0 : call_numbers_;
    call_numbers_ = before + NumElements(*x.shape);
    auto bytes = [&](int64_t numbers) {
      return ReceivedBytes(node.op, numbers,
                           static_cast<int64_t>(ByteSize(StoredAs(x))), ranks);
    };
    return bytes(call_numbers_) - bytes(before);
  }

  double Compute(const Node& node, bool updates) {
    const double seconds =
        cluster_.start + SecondsOf(node, cluster_.gpu, cluster_.efficiency);
    time_.host_bytes += HostBytesOf(node);
    const std::string kind = WorkOf(node);
    auto row = std::ranges::find(time_.work, kind, &WorkTotal::kind);
    if (row == time_.work.end()) row = time_.work.insert(row, {kind});
    ++row->nodes;
    row->seconds += seconds;
    row->flops += FactsOf(node).flops(node);
    (updates ? time_.updates : time_.compute) += seconds;
    if (node.part != Part::kRecomputed) {
      time_.model_flops += ModelFlops(node);
    }
    return seconds;
  }

  // The time of a node that starts at `start` and takes `seconds` alone. Calls
  // that have begun run until network_free_.
  double BesideCalls(double start, double seconds) const {
    const double share = cluster_.network.multiprocessors;
    const double beside = std::max(network_free_ - start, 0.0);
    return seconds + share * std::min(beside, seconds / (1 - share));
  }

  // `first`: of a call.
  double Send(const Node& node, bool first) {
    const std::string group = node.String("group", "");
    const int64_t ranks = node.Int("ranks", 1);
    auto stride = cluster_.strides.find(group);
    RingCost cost = CostOfRing(
        node.op, Received(node, ranks, first),
        {ranks, stride == cluster_.strides.end() ? 1 : stride->second},
        cluster_.network);
    if (!first) cost.seconds -= cost.latency;
    auto row =
        std::ranges::find_if(time_.collectives, [&](const CallsTotal& calls) {
          return calls.op == node.op && calls.group == group &&
                 calls.ranks == ranks;
        });
    if (row == time_.collectives.end()) {
      row = time_.collectives.insert(row, {node.op, group, ranks});
    }
    row->calls += first;
    row->node_bytes += cost.node_bytes;
    row->net_bytes += cost.net_bytes;
    row->seconds += cost.seconds;
    time_.communication += cost.seconds;
    return cost.seconds;
  }

  const Plan& plan_;
  const Cluster& cluster_;
  std::unordered_set<const Node*> runs_;
  std::unordered_set<const Value*> backward_;
  std::unordered_map<const Value*, double> ready_;  // not views
  double compute_free_ = 0, network_free_ = 0, update_free_ = 0;
  std::vector<double> update_ends_;    // of calls beside other steps
  int64_t call_numbers_ = 0;           // elements of the call's operands so far
  std::vector<const Value*> results_;  // of the call so far: it ends for all
  Timeline time_;
};

}  // namespace

Timeline Simulate(const Plan& plan, const Cluster& cluster, const Value* seed) {
  return Simulation(plan, cluster, seed).Run();
}

}  // namespace onnx_fp8
