// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/run_together.h"

#include <algorithm>
#include <map>

#include "providers/plan/plan.h"

namespace onnx_fp8 {
namespace {

// Most steps that are examined for a group. It keeps the time linear in the
// size of the graph.
constexpr size_t kLookAhead = 256;

// Workspaces of a group may raise the most bytes in use by this amount.
constexpr size_t kAllowance = size_t{1} << 20;

class Grouping {
 public:
  Grouping(const std::vector<int>& order, const std::vector<KernelOfMany>& many,
           const std::vector<std::pair<int, int>>& edges,
           const std::vector<Buffer>& buffers)
      : given_(order), many_(many), before_(order.size()), done_(order.size()) {
    for (auto [from, to] : edges) before_[Index(to)].push_back(from);
    for (size_t place = 0; place < given_.size(); ++place) {
      if (KernelOfMany kind = many_[Index(given_[place])]) {
        alike_[kind].push_back(place);
      }
    }
    Measure(buffers);
  }

  std::vector<int> Run(std::vector<int>& order) {
    std::vector<int> begins;
    order.clear();
    for (size_t place = 0; place < given_.size(); ++place) {
      if (done_[Index(given_[place])]) continue;
      auto begin = static_cast<int>(order.size());
      for (int step : Group(place)) {
        order.push_back(step);
        begins.push_back(begin);
        done_[Index(step)] = true;
      }
    }
    return begins;
  }

 private:
  // Finds for each place the bytes in use, the bytes of results that begin
  // there, and the bytes of workspaces.
  void Measure(const std::vector<Buffer>& buffers) {
    results_.assign(given_.size(), 0);
    workspaces_.assign(given_.size(), 0);
    joined_.assign(given_.size(), 0);
    live_.assign(given_.size() + 1, 0);
    std::vector<size_t> less(given_.size() + 2);
    for (const Buffer& buffer : buffers) {
      if (buffer.start >= 0) {
        auto& own = buffer.end > buffer.start ? results_ : workspaces_;
        own[Index(buffer.start)] += buffer.bytes;
      }
      live_[Index(std::max(buffer.start, 0))] += buffer.bytes;
      less[Index(buffer.end + 1)] += buffer.bytes;
    }
    size_t bytes = 0;
    for (size_t place = 0; place < live_.size(); ++place) {
      bytes += live_[place];
      bytes -= less[place];
      live_[place] = bytes;
    }
    most_ = std::ranges::max(live_);
  }

  // The step at this place, and all that join it.
  std::vector<int> Group(size_t place) {
    std::vector<int> group = {given_[place]};
    KernelOfMany kind = many_[Index(given_[place])];
    if (!kind) return group;
    const std::vector<size_t>& alike = alike_[kind];
    size_t looked = 0;
    for (auto it = std::ranges::upper_bound(alike, place);
         it != alike.end() && looked < kLookAhead; ++it) {
      int step = given_[*it];
      if (done_[Index(step)]) continue;
      ++looked;
      if (!IsReady(step) || !HasRoom(*it, place)) continue;
      if (!MoveResults(*it, place)) continue;
      joined_[place] += workspaces_[*it];
      group.push_back(step);
    }
    return group;
  }

  // Whether the workspace of a step fits beside a group's workspaces.
  bool HasRoom(size_t from, size_t to) const {
    size_t bytes = workspaces_[from];
    return bytes == 0 || live_[to] + joined_[to] + bytes <= most_ + kAllowance;
  }

  bool IsReady(int step) const {
    return std::ranges::all_of(before_[Index(step)],
                               [&](int other) { return done_[Index(other)]; });
  }

  // Lets the results of a step live from another place on, if there is room.
  bool MoveResults(size_t from, size_t to) {
    size_t bytes = results_[from];
    if (bytes == 0) return true;
    auto begin = live_.begin() + static_cast<std::ptrdiff_t>(to);
    auto end = live_.begin() + static_cast<std::ptrdiff_t>(from);
    if (*std::max_element(begin, end) + bytes > most_) return false;
    std::for_each(begin, end, [&](size_t& live) { live += bytes; });
    return true;
  }

  const std::vector<int> given_;
  const std::vector<KernelOfMany>& many_;
  std::vector<std::vector<int>> before_;  // of each step
  std::vector<bool> done_;
  std::map<KernelOfMany, std::vector<size_t>> alike_;  // places
  std::vector<size_t> results_, workspaces_, live_;    // by place
  std::vector<size_t> joined_;  // workspaces that moved there
  size_t most_ = 0;
};

}  // namespace

std::vector<int> RunTogether(std::vector<int>& order,
                             const std::vector<KernelOfMany>& many,
                             const std::vector<std::pair<int, int>>& edges,
                             const std::vector<Buffer>& buffers) {
  return Grouping(order, many, edges, buffers).Run(order);
}

}  // namespace onnx_fp8
