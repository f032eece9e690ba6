// SPDX-License-Identifier: Apache-2.0
//
// The table of losses. Each one is a graph and nothing else: training,
// evaluation and the count of right answers build it from the same row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "graph/builder.h"
#include "graph/graph.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// A class label that does not count; PyTorch's default.
inline constexpr int64_t kIgnoredLabel = -100;

struct LossKind {
  std::string_view name;
  // kInt64: labels are classes. They have the output's shape less the last
  // axis, and those of kIgnoredLabel do not count. kFloat: labels have the
  // output's shape.
  DType label;
  // The mean loss, of rank 0. The output is float, the label of type `label`.
  Value* (*build)(Builder& b, Value* output, Value* label);
  // Bool for each label: whether the output has it right. Null: an output can
  // not be right or wrong. The output and the label have their own types.
  Value* (*hits)(Builder& b, Value* output, Value* label) = nullptr;
  // Whether exp(loss) is a perplexity, where each token has a label.
  bool likelihood = false;
};

// The row of that name; null: none, as for "" and "output:NAME".
const LossKind* FindLoss(std::string_view kind);

// NAME of "output:NAME", the kind of a loss that the model computes.
std::optional<std::string> OwnOutput(std::string_view kind);

// All kinds, for messages: "A, B or output:NAME".
std::string LossNames();

// Appends the loss of `spec` to a forward graph, whose shapes may be open, and
// returns it: fp32, rank 0, named "loss" (or "loss_1", … where the model has a
// value of that name). It is not made a graph output.
//
// The label becomes a graph input named spec.label, unless there is one. The
// loss of "output:NAME" is that graph output, of one element.
//
// Errors: another kind; an output that does not exist (the message lists the
// outputs) or does not fit; a label name that another value has.
Value* AddLoss(Graph& graph, const LossSpec& spec);

}  // namespace onnx_fp8
