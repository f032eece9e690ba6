// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/fp8/gemm_decision.h"
#include "graph/graph.h"
#include "onnx_fp8/dump_spec.h"
#include "onnx_fp8/dumped_tensor.h"

namespace onnx_fp8 {

// A dumped tensor without its numbers, and the outputs of the graph that have
// them; "": it has none.
struct DumpedOutputs {
  DumpedTensor label;
  std::string value, codes, scale;
};

// Says in the metadata of a product that stays in high precision what its
// operands are, for DumpProducts. REQUIRES: a role.
void NameOperands(const GemmInfo& gemm);

// Errors: a glob of the spec matches no layer of `decisions`.
void CheckDumped(const DumpSpec& spec,
                 const std::vector<GemmDecision>& decisions,
                 const std::string& file);

// Adds outputs for tensors of the layers whose names match: the operands of
// their products before the casts, codes and scales; and the products' results.
// Products in high precision have operands and results. What the backward
// computes again is left out. The graph's other nodes keep their order and
// their results. REQUIRES: no pass that cuts or moves products follows, but
// passes that fit the graph to a provider may.
std::vector<DumpedOutputs> DumpProducts(Graph& graph, const DumpSpec& spec);

}  // namespace onnx_fp8
