// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/order.h"

#include <functional>
#include <queue>

namespace onnx_fp8 {
namespace {

struct Edge {
  int step;   // the other end
  int write;  // the write that wants the edge; -1: data
};

class Sorter {
 public:
  Sorter(const std::vector<int>& given,
         const std::vector<std::pair<int, int>>& edges,
         std::vector<InPlaceWrite>& writes)
      : n_(static_cast<int>(given.size())),
        given_(given),
        place_(given.size()),
        writes_(writes),
        out_(given.size()),
        in_(given.size()),
        waiting_(given.size()),
        done_(given.size()) {
    for (int i = 0; i < n_; ++i) place_[Size(given[Size(i)])] = i;
    for (auto [from, to] : edges) Connect(from, to, -1);
    for (size_t w = 0; w < writes.size(); ++w) {
      writes[w].granted = true;
      for (int reader : writes[w].readers) {
        Connect(reader, writes[w].writer, static_cast<int>(w));
      }
    }
  }

  std::vector<int> Run() {
    for (int step = 0; step < n_; ++step) {
      if (waiting_[Size(step)] == 0) ready_.push(place_[Size(step)]);
    }
    std::vector<int> order;
    while (true) {
      while (!ready_.empty()) {
        int step = given_[Size(ready_.top())];
        ready_.pop();
        order.push_back(step);
        done_[Size(step)] = true;
        for (const Edge& edge : out_[Size(step)]) {
          if (Holds(edge)) Release(edge.step);
        }
      }
      if (order.size() == Size(n_) || !BreakCycle()) return order;
    }
  }

 private:
  static size_t Size(int i) { return static_cast<size_t>(i); }

  void Connect(int from, int to, int write) {
    out_[Size(from)].push_back({to, write});
    in_[Size(to)].push_back({from, write});
    ++waiting_[Size(to)];
  }

  bool Holds(const Edge& edge) const {
    return edge.write < 0 || writes_[Size(edge.write)].granted;
  }

  void Release(int step) {
    if (--waiting_[Size(step)] == 0) ready_.push(place_[Size(step)]);
  }

  // Nothing is ready: every remaining step waits for another remaining step.
  // Going from a step to one for which it waits must therefore end in a cycle.
  bool BreakCycle() {
    while (done_[Size(first_)]) ++first_;
    int step = first_;
    std::vector<int> seen_at(Size(n_), -1);  // index in the path
    std::vector<int> path_writes;
    while (seen_at[Size(step)] < 0) {
      seen_at[Size(step)] = static_cast<int>(path_writes.size());
      for (const Edge& edge : in_[Size(step)]) {
        if (done_[Size(edge.step)] || !Holds(edge)) continue;
        path_writes.push_back(edge.write);
        step = edge.step;
        break;
      }
    }
    int cheapest = -1;
    for (size_t i = Size(seen_at[Size(step)]); i < path_writes.size(); ++i) {
      int w = path_writes[i];
      if (w < 0) continue;
      if (cheapest < 0 ||
          writes_[Size(w)].bytes < writes_[Size(cheapest)].bytes) {
        cheapest = w;
      }
    }
    if (cheapest < 0) return false;
    InPlaceWrite& write = writes_[Size(cheapest)];
    for (int reader : write.readers) {
      if (!done_[Size(reader)]) Release(write.writer);
    }
    write.granted = false;
    return true;
  }

  int n_;
  const std::vector<int>& given_;
  std::vector<int> place_;  // of a step in the given order
  std::vector<InPlaceWrite>& writes_;
  std::vector<std::vector<Edge>> out_, in_;
  std::vector<int> waiting_;  // number of edges that hold and come from
                              // remaining steps
  std::vector<bool> done_;
  int first_ = 0;  // all steps before it are done
  std::priority_queue<int, std::vector<int>, std::greater<>> ready_;  // places
};

}  // namespace

std::vector<int> OrderSteps(const std::vector<int>& given,
                            const std::vector<std::pair<int, int>>& edges,
                            std::vector<InPlaceWrite>& writes) {
  return Sorter(given, edges, writes).Run();
}

}  // namespace onnx_fp8
