// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/specialize.h"
#include "providers/executor.h"

namespace onnx_fp8 {

// Runs one graph on the CPU for feeds of any shapes. Threads may use it at the
// same time: each Call has an executor of its own, which a later Call takes
// over.
class GraphRunner {
  struct Planned;

 public:
  // `fuse`: passes that make a graph of known shapes faster; may be empty.
  // REQUIRES: a graph as ReadModel gives it, without state.
  explicit GraphRunner(std::shared_ptr<const Graph> graph,
                       std::function<void(Graph&)> fuse = {});
  ~GraphRunner();

  class Call {
   public:
    ~Call();
    Call(Call&&) = default;

    // Types of the results, in the order of the graph's outputs.
    size_t num_results() const;
    DType dtype(size_t i) const;
    const Shape& shape(size_t i) const;

    // Errors: Executor::RunInto's.
    void Run(std::span<Tensor> results, uint64_t draw = 0);

   private:
    friend class GraphRunner;
    Call() = default;

    std::shared_ptr<Planned> planned_;
    std::unique_ptr<Executor> executor_;
    std::vector<Tensor> feeds_;  // of the planned graph's inputs
    std::mutex* mutex_ = nullptr;
  };

  // `feeds` in the order of the graph's inputs. Makes a plan if there is none
  // for their shapes, and for the values of those that decide shapes. Errors:
  // those of Specialize and of the passes after it.
  Call Prepare(std::span<const Tensor> feeds);

  const Graph& graph() const { return *graph_; }

 private:
  std::shared_ptr<Planned> Find(const std::vector<Shape>& shapes,
                                const InputValues& values);
  std::shared_ptr<Planned> Make(std::vector<Shape> shapes,
                                const InputValues& values) const;

  std::shared_ptr<const Graph> graph_;
  std::function<void(Graph&)> fuse_;
  std::unique_ptr<ExecutionProvider> provider_;
  std::mutex mutex_;  // guards the plans and their idle executors
  std::list<std::shared_ptr<Planned>> plans_;  // most recently used first
};

}  // namespace onnx_fp8
