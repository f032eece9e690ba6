// SPDX-License-Identifier: Apache-2.0
//
// A pass is a rewrite of a graph with a name; a pipeline is a list of passes.
// The lists are in training/step/pipelines.cc.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

struct Pass {
  std::string name;
  std::function<void(Graph&)> run;
  // Without this pass the graph gives the same numbers, except for rounding.
  bool may_skip = false;
};

using Passes = std::vector<Pass>;

struct PassSeconds {
  std::string name;
  double seconds;
};

struct PassOptions {
  // Folder for the text of the graph after each pass; "": none is written.
  std::string dump;
  std::vector<std::string> skip;  // names of passes that may be skipped
};

// kNo: for graphs that keep ops of foreign domains, which Verify does not know.
enum class Verifying { kYes, kNo };

// Runs the pipelines of one command and keeps their times.
class PassRunner {
 public:
  explicit PassRunner(PassOptions options = {});

  // Starts the pipeline `name`. Its texts go to DUMP/<number>_<name>/, where
  // the number counts the pipelines.
  void Begin(const std::string& name, Verifying verifying = Verifying::kYes);

  // Runs `make`, a pass that creates the graph: Import, Specialize. Its result
  // points to the graph.
  template <typename F>
  auto Source(const std::string& name, F make) {
    auto begin = Clock::now();
    auto graph = make();
    Keep(name, begin, *graph);
    return graph;
  }

  // Runs the passes in order, except the ones that options.skip names. The
  // graph is verified after the last one; where texts are written, and in debug
  // builds, after each one; not at all if the pipeline is not Verifying.
  // Errors: a pass's; Verify's, which name the pass; a text that can't be
  // written.
  void Run(const Passes& passes, Graph& graph);

  // Times of the passes that ran, in the order of the first run; repeated runs
  // add up.
  const std::vector<PassSeconds>& seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;

  void Keep(const std::string& name, Clock::time_point begin,
            const Graph& graph);
  void Write(const std::string& name, const Graph& graph);

  PassOptions options_;
  std::string pipeline_;
  Verifying verifying_ = Verifying::kYes;
  int pipelines_ = 0;
  int passes_ = 0;  // number of passes in this pipeline so far
  std::vector<PassSeconds> seconds_;
};

}  // namespace onnx_fp8
