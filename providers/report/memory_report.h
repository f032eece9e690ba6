// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/memory_report.h"
#include "providers/plan/plan.h"

namespace onnx_fp8 {

// Names of values whose meaning the graph does not tell.
struct GradientNames {
  std::string seed;  // the gradient of the loss by itself; "": no backward
  std::set<std::string> parameters;  // gradients of parameters, and their sums
  bool released = false;  // each update runs as soon as its gradient is known
};

// The kind of each of plan.tenants. A view counts as the value that it views.
std::vector<MemoryKind> TenantKinds(const Plan& plan, const Graph& graph,
                                    const GradientNames& gradients);

MemoryReport MakeMemoryReport(const Plan& plan, const Graph& graph,
                              const GradientNames& gradients);

}  // namespace onnx_fp8
