// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// A rewrite of a whole graph. It leaves a graph that Verify accepts.
struct Pass {
  const char* name;
  std::function<void(Graph&)> run;
};

struct PassOptions {
  std::set<std::string, std::less<>> skip;  // names of passes
  // Folder that gets the graph's text before the first pass (00_input.txt) and
  // after each (NN_name.txt); made if it is not there. Empty: no dumps.
  std::string dump_folder;
  bool foreign_ops = false;  // as in VerifyOptions
};

struct PassTiming {
  std::string name;
  double seconds = 0;  // of the pass alone
  size_t nodes = 0;    // in the graph after it
};

// Runs the passes in order, each followed by Verify. Errors: what a pass or
// Verify finds, naming the pass; a name in `skip` that no pass has; a dump that
// can't be written.
std::vector<PassTiming> RunPasses(Graph& graph, std::span<const Pass> passes,
                                  const PassOptions& options = {});

}  // namespace onnx_fp8
