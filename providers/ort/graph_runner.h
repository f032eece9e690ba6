// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/pass.h"
#include "graph/passes/specialize.h"
#include "providers/run/executor.h"
#include "training/make_provider.h"

namespace onnx_fp8 {

// Runs one graph for feeds of any shapes. Threads may use it at the same time:
// each Call has an executor of its own, which a later Call takes over. On a
// device there is one Call at a time.
class GraphRunner {
  struct Planned;

 public:
  // Passes that make a graph of known shapes faster.
  using Fuse = std::function<void(Graph&, PassRunner&)>;

  // `provider`: as in make_provider.h. REQUIRES: a graph as ReadModel gives it,
  // without state. Errors: as MakeProvider's.
  explicit GraphRunner(std::shared_ptr<const Graph> graph,
                       const std::string& provider = ProviderNames().front(),
                       Fuse fuse = {});
  ~GraphRunner();

  class Call {
   public:
    ~Call();
    Call(Call&&) = default;

    // Types of the results, in the order of the graph's outputs.
    size_t num_results() const;
    DType dtype(size_t i) const;
    const Shape& shape(size_t i) const;

    // `results` lie on the host. Errors: as the executor's.
    void Run(std::span<Tensor> results, uint64_t draw = 0);

   private:
    friend class GraphRunner;
    explicit Call(GraphRunner& runner);
    void RunOnDevice(std::span<Tensor> results, uint64_t draw);

    GraphRunner* runner_;
    std::unique_lock<std::mutex> alone_;  // on a device
    std::shared_ptr<Planned> planned_;
    std::unique_ptr<Executor> executor_;
    std::vector<Tensor> feeds_;  // of the planned graph's inputs
  };

  // `feeds` lie on the host, in the order of the graph's inputs. Makes a plan
  // if there is none for their shapes, and for the values of feeds that decide
  // shapes. On a device it waits until no other Call lives. Errors: as
  // Specialize's and the later passes'.
  Call Prepare(std::span<const Tensor> feeds);

  const Graph& graph() const { return *graph_; }

 private:
  std::shared_ptr<Planned> Find(const std::vector<Shape>& shapes,
                                const InputValues& values);
  std::shared_ptr<Planned> Make(std::vector<Shape> shapes,
                                const InputValues& values) const;

  std::shared_ptr<const Graph> graph_;
  const Fuse fuse_;
  std::unique_ptr<ExecutionProvider> provider_;
  std::mutex device_;  // whose queue takes the work of one thread
  std::mutex mutex_;   // guards the plans and their idle executors
  std::list<std::shared_ptr<Planned>> plans_;  // most recently used first
};

}  // namespace onnx_fp8
