// SPDX-License-Identifier: Apache-2.0
//
// The memory of a step on paper, whose backward computes some results of the
// forward again (RecomputeInBackward).
#pragma once

#include <cstddef>
#include <functional>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Costs of a step's parts, which a caller with kernels knows.
struct StepCosts {
  std::function<size_t(const Value&)> bytes;  // in memory
  std::function<double(const Node&)> seconds;
  // Memory that the node needs for itself while it runs; empty: none does.
  std::function<size_t(const Node&)> workspace = {};
  // Bytes of a value that only second runs read in the backward; empty: as
  // `bytes`. A kernel may make a value on the way to another one, without
  // memory, as long as the value need not live until then.
  std::function<size_t(const Value&)> bytes_for_second_runs = {};
};

// Bytes that are alive when the nodes run in the order of the graph. Each value
// has memory of its own from its node to its last reader; views share it, and
// inputs and initializers have none. A node that is computed again runs just
// before its first reader of the backward. Nodes are numbered in the order of
// the graph. Times count nodes and second runs of nodes.
class LiveMemory {
 public:
  static constexpr int kNever = -1;

  // A value and all views of it.
  struct Block {
    int writer;
    size_t bytes;
    size_t bytes_for_second_runs;
    std::vector<int> readers;
    bool kept;  // to the end of the step
    // Bytes of the last simulation from the writer's first run on.
    size_t held = 0;
    // Times of the last simulation: of readers that run with the forward (or of
    // the writer), and of the others. kNever: there are none.
    int last_forward = kNever;
    int first_backward = kNever, last_backward = kNever;
  };

  // `forward`: how many nodes of the graph, from the first, are the forward.
  // `kept`: values that live to the end, besides the ones that the graph
  // returns. `graph` must outlive this. REQUIRES: sorted, concrete shapes.
  LiveMemory(const Graph& graph, size_t forward,
             const std::unordered_set<const Value*>& kept,
             const StepCosts& costs);

  // Simulates a step that computes the nodes `again` again. O(nodes + edges).
  void Simulate(const std::vector<char>& again);

  // Results of the last simulation.
  size_t peak() const { return live_[static_cast<size_t>(peak_time_)]; }
  int peak_time() const { return peak_time_; }
  // Whether the backward runs the node: a second time, or, if only the backward
  // reads its results, for the first time.
  bool RunsInBackward(int node) const { return place_[At(node)] >= 0; }
  bool Moves(int node) const { return moved_[At(node)] != 0; }

  size_t forward() const { return forward_; }
  const std::vector<const Node*>& nodes() const { return nodes_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  // Blocks that the node reads and writes, each once.
  const std::vector<int>& Reads(int node) const { return reads_[At(node)]; }
  const std::vector<int>& Writes(int node) const { return writes_[At(node)]; }
  // The block of which a node makes a view; kNever: the node makes none.
  int ViewedBy(int node) const { return viewed_[At(node)]; }

 private:
  // A run of a node.
  struct Run {
    int node;
    bool again;
  };

  static size_t At(int i) { return static_cast<size_t>(i); }
  bool InForward(int node) const { return At(node) < forward_; }

  void FindBlocks(const Graph& graph,
                  const std::unordered_set<const Value*>& kept,
                  const StepCosts& costs);
  void FindPlaces(const std::vector<char>& again);
  void FindTimes();
  void AddBlock(Block* block);
  void Add(int begin, int end, size_t bytes);

  const size_t forward_;
  std::vector<const Node*> nodes_;
  std::vector<Block> blocks_;
  std::vector<std::vector<int>> reads_, writes_;
  std::vector<int> viewed_;
  std::vector<size_t> workspace_;
  // The last simulation, by node of the forward: the node of the backward
  // before which it runs again (kNever: it does not), whether it runs there
  // only, and when.
  std::vector<int> place_;
  std::vector<char> moved_;
  std::vector<int> again_time_;
  std::vector<int> time_;  // by node
  std::vector<Run> runs_;  // by time
  std::vector<size_t> live_;
  int peak_time_ = 0;
};

}  // namespace onnx_fp8
