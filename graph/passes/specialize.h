// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

// Values of integer and bool inputs of one element, by name.
using InputValues = std::map<std::string, int64_t>;

struct SpecializeReport {
  int64_t nodes_before = 0;  // subgraphs included
  int64_t nodes_after = 0;
  int64_t folded = 0;  // computed here, once, instead of in every step
  double seconds = 0;  // that Specialize took
  // The given values that the graph needed. The graph holds only for them, and
  // no longer has these inputs.
  InputValues values;
  // Parameters that nothing in the graph reads: shapes and values decided
  // against their branches.
  std::vector<std::string> unread;
};

// Why parameters are unread, and a note for people ("" if there are none).
std::string UnreadReason(const SpecializeReport& report);
std::string UnreadNote(const SpecializeReport& report);

// The graph for these input shapes (by input name, all sizes known). Every
// value has a concrete shape, shape arithmetic and control flow are gone, and
// sequences have become plain values. It is one walk in topological order.
// Values that depend only on shapes and constants are computed (up to 16 MiB
// per value and 2^30 operations per node). Shape of a known shape becomes a
// constant. An If with a known condition is inlined; of an If on data both
// branches are inlined, and Where selects. Loop and Scan with a known trip
// count are unrolled. Parameters and state (Value::role) are never folded.
// Rows whose number data decide get a bound (bounded_rows.h). Names of inputs,
// outputs and initializers stay, and so do bindings of state.
//
// An input of one integer or bool (a sampling rate, a flag) that decides a
// branch, a trip count or a shape becomes a constant with its value in
// `values`. Other inputs in `values` stay inputs.
//
// The walk takes its cost from `spending`: `visits`, `nodes` of the new graph,
// `work` and `constants` of folding. Null: the default budgets.
//
// Errors: an input without shape or of another rank than the model's; a value
// whose shape stays unknown, naming its node; a value that is needed and not
// given, naming its input; a budget that is used up, naming node and budget.
std::unique_ptr<Graph> Specialize(const Graph& graph,
                                  const std::map<std::string, Shape>& shapes,
                                  const Evaluator& evaluator,
                                  SpecializeReport* report = nullptr,
                                  const InputValues& values = {},
                                  Spending* spending = nullptr);

// An integer or bool of one element, of rank 0 or 1.
bool MayBeKey(DType dtype, const Shape& shape);

// The feeds that Specialize may take as values.
InputValues ValuesOf(const Graph& graph,
                     const std::map<std::string, Tensor>& feeds);

}  // namespace onnx_fp8
