// SPDX-License-Identifier: Apache-2.0
//
// The results of `bench nodes`, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "cli/bench/node_case.h"
#include "cli/bench/node_speed.h"
#include "onnx_fp8/profile_report.h"
#include "providers/report/roofline.h"

namespace onnx_fp8 {

struct NodeResult {
  NodeCase node;
  NodeProfile cost;         // its milliseconds are the bound
  bool multiplies = false;  // a product or attention
  NodeTime time;            // no runs: it did not run
  double moved = 0;         // bytes that the kernel reads and writes
  NodeTime copy;            // of as many bytes; no runs: it multiplies
  double difference = 0;    // from the CPU's
  std::string error;        // "": it is not wrong
  std::string note;
};

struct NodeReport {
  std::string provider, dtype, machine;
  bool quick = false;   // small sizes
  GpuPeaks peaks = {};  // no name: not known
  std::vector<NodeResult> results;

  // Nodes that failed or are wrong.
  int64_t Failed() const;
  void Print(std::ostream& out) const;
  nlohmann::ordered_json Json() const;
};

// "QuantizeTensor, dynamic scale".
std::string NameOf(const NodeCase& node);

}  // namespace onnx_fp8
