// SPDX-License-Identifier: Apache-2.0
//
// Times attention and its gradient on a provider. One call computes the whole
// batch, or several calls compute a part of the batch each.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "cli/bench/causal_attention.h"
#include "cli/bench/node_speed.h"
#include "providers/report/roofline.h"

namespace onnx_fp8 {

struct SlicedAttention {
  std::string dtype;  // "fp32" or "bf16"
  CausalSizes sizes;
  int64_t slices = 1;
  NodeTime forward, backward;  // of all slices; no runs: not measured
  std::string error;           // "": none
  std::string note;            // why it was not measured
};

// Measures the case and fills in its times. Each call has tensors of its own;
// all calls share one workspace.
void Measure(ExecutionProvider& provider, double seconds, SlicedAttention* one);

struct SlicedAttentionReport {
  std::string provider, machine;
  bool nondeterministic = false;
  GpuPeaks peaks = {};  // no name: not known
  std::vector<SlicedAttention> cases;

  int64_t Failed() const;
  void Print(std::ostream& out) const;
  nlohmann::ordered_json Json() const;
};

}  // namespace onnx_fp8
