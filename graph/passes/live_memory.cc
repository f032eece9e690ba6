// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/live_memory.h"

#include <algorithm>
#include <unordered_map>

#include "graph/views.h"

namespace onnx_fp8 {

LiveMemory::LiveMemory(const Graph& graph, size_t forward,
                       const std::unordered_set<const Value*>& kept,
                       const StepCosts& costs)
    : forward_(forward) {
  FindBlocks(graph, kept, costs);
}

void LiveMemory::FindBlocks(const Graph& graph,
                            const std::unordered_set<const Value*>& kept,
                            const StepCosts& costs) {
  std::unordered_set<const Value*> returned = kept;
  returned.insert(graph.outputs.begin(), graph.outputs.end());
  for (const StateBinding& binding : graph.state) returned.insert(binding.next);
  std::unordered_map<const Value*, int> block_of;
  const auto block = [&](const Value* value) {
    const auto known = block_of.find(value);
    return known == block_of.end() ? kNever : known->second;
  };
  for (const Node& node : graph.nodes()) {
    const auto number = static_cast<int>(nodes_.size());
    nodes_.push_back(&node);
    reads_.emplace_back();
    writes_.emplace_back();
    viewed_.push_back(kNever);
    workspace_.push_back(costs.workspace ? costs.workspace(node) : 0);
    const int viewed = SharesMemory(node) ? block(node.in(0)) : kNever;
    if (viewed >= 0) {
      viewed_.back() = viewed;
      block_of[node.out(0)] = viewed;
      blocks_[At(viewed)].kept |= returned.contains(node.out(0));
      continue;
    }
    for (const Value* in : node.inputs()) {
      const int b = in ? block(in) : kNever;
      if (b < 0) continue;
      std::vector<int>& readers = blocks_[At(b)].readers;
      if (!readers.empty() && readers.back() == number) continue;
      readers.push_back(number);
      reads_.back().push_back(b);
    }
    for (const Value* out : node.outputs()) {
      if (!out) continue;
      block_of[out] = static_cast<int>(blocks_.size());
      writes_.back().push_back(block_of[out]);
      const size_t bytes = costs.bytes(*out);
      const size_t longer = costs.bytes_for_second_runs
                                ? costs.bytes_for_second_runs(*out)
                                : bytes;
      blocks_.push_back({number, bytes, longer, {}, returned.contains(out)});
    }
  }
}

void LiveMemory::Simulate(const std::vector<char>& again) {
  FindPlaces(again);
  FindTimes();
  live_.assign(runs_.size() + 1, 0);
  for (Block& block : blocks_) AddBlock(&block);
  for (size_t time = 0; time < runs_.size(); ++time) {
    const size_t bytes = workspace_[At(runs_[time].node)];
    const int at = static_cast<int>(time);
    const bool runs = runs_[time].again || !InForward(runs_[time].node) ||
                      !Moves(runs_[time].node);
    if (runs) Add(at, at, bytes);
  }
  // Until here live_ holds differences.
  peak_time_ = 0;
  for (size_t time = 1; time < runs_.size(); ++time) {
    live_[time] += live_[time - 1];
    if (live_[time] > peak()) peak_time_ = static_cast<int>(time);
  }
}

// Readers come first, as in RecomputeInBackward.
void LiveMemory::FindPlaces(const std::vector<char>& again) {
  place_.assign(forward_, kNever);
  moved_.assign(forward_, 0);
  for (size_t i = forward_; i-- > 0;) {
    if (!again[i]) continue;
    int first = kNever;
    bool moves = true;
    for (int b : writes_[i]) {
      moves = moves && !blocks_[At(b)].kept;
      for (int reader : blocks_[At(b)].readers) {
        const int place = InForward(reader) ? place_[At(reader)] : reader;
        moves = moves && (!InForward(reader) || Moves(reader));
        if (place >= 0 && (first < 0 || place < first)) first = place;
      }
    }
    place_[i] = first;
    moved_[i] = first >= 0 && moves;
  }
}

void LiveMemory::FindTimes() {
  const size_t nodes = nodes_.size();
  std::vector<int> next(nodes - forward_, 0);  // time of the next second run
  for (int place : place_) {
    if (place >= 0) ++next[At(place) - forward_];
  }
  time_.assign(nodes, 0);
  runs_.clear();
  for (size_t i = 0; i < forward_; ++i) {
    time_[i] = static_cast<int>(i);
    runs_.push_back({static_cast<int>(i), false});
  }
  for (size_t i = forward_; i < nodes; ++i) {
    const auto first = static_cast<int>(runs_.size());
    runs_.resize(runs_.size() + At(next[i - forward_]));
    next[i - forward_] = first;
    time_[i] = static_cast<int>(runs_.size());
    runs_.push_back({static_cast<int>(i), false});
  }
  again_time_.assign(forward_, kNever);
  for (size_t i = 0; i < forward_; ++i) {
    if (place_[i] < 0) continue;
    again_time_[i] = next[At(place_[i]) - forward_]++;
    runs_[At(again_time_[i])] = {static_cast<int>(i), true};
  }
}

void LiveMemory::AddBlock(Block* block) {
  const bool early = InForward(block->writer);
  const int written = time_[At(block->writer)];
  const bool moves = early && Moves(block->writer);
  const bool again = early && RunsInBackward(block->writer);
  block->last_forward = early && !moves ? written : kNever;
  block->first_backward = block->last_backward = kNever;
  bool only_second_runs = true;
  for (int reader : block->readers) {
    int late = kNever;
    if (!InForward(reader)) {
      late = time_[At(reader)];
      only_second_runs = false;
    } else {
      if (!Moves(reader)) {
        block->last_forward = std::max(block->last_forward, time_[At(reader)]);
      }
      late = again_time_[At(reader)];
    }
    if (late < 0) continue;
    if (block->first_backward < 0 || late < block->first_backward) {
      block->first_backward = late;
    }
    block->last_backward = std::max(block->last_backward, late);
  }
  const int last = static_cast<int>(runs_.size()) - 1;
  const bool longer = early && !again && !block->kept && only_second_runs &&
                      block->last_backward >= 0;
  block->held = longer ? block->bytes_for_second_runs : block->bytes;
  if (!moves) {
    const int read = again
                         ? block->last_forward
                         : std::max(block->last_forward, block->last_backward);
    Add(written, block->kept ? last : std::max(written, read), block->held);
  }
  if (again) {
    const int begin = again_time_[At(block->writer)];
    Add(begin, std::max(begin, block->last_backward), block->bytes);
  }
}

void LiveMemory::Add(int begin, int end, size_t bytes) {
  live_[At(begin)] += bytes;
  live_[At(end) + 1] -= bytes;
}

}  // namespace onnx_fp8
