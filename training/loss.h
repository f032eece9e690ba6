// SPDX-License-Identifier: Apache-2.0
// The table of losses. A loss is a graph and nothing else: training, evaluation
// and the count of right answers build it from the same row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "graph/builder.h"
#include "graph/graph.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The class label that is ignored; PyTorch's default.
inline constexpr int64_t kIgnoredLabel = -100;

struct LossKind {
  std::string_view name;
  // kInt64: labels are classes. They have the output's shape without the last
  // axis, and labels of kIgnoredLabel do not count. kFloat: labels have the
  // output's shape.
  DType label;
  // The mean loss, of rank 0. The output is float, the label of type `label`.
  Value* (*build)(Builder& b, Value* output, Value* label);
  // A bool for each label: whether the output is right. Null: outputs of this
  // loss are not right or wrong. Output and label keep their own types.
  Value* (*hits)(Builder& b, Value* output, Value* label) = nullptr;
  // Whether exp(loss) is a perplexity if each token has a label.
  bool likelihood = false;
};

// The row with this name; null if there is none, as for "" and "output:NAME".
const LossKind* FindLoss(std::string_view kind);

// NAME of "output:NAME", the kind of a loss that the model computes.
std::optional<std::string> OwnOutput(std::string_view kind);

// All kinds, for messages: "A, B or output:NAME".
std::string LossNames();

// Appends the loss of `spec` to a forward graph and returns it; the graph's
// shapes may be unknown. The loss is fp32, of rank 0, named "loss" (or
// "loss_1", … if the model has a value of that name). It is not made a graph
// output.
//
// The label becomes a graph input named spec.label, unless there is one. The
// loss of "output:NAME" is that graph output, of one element.
//
// Errors: another kind; an output that does not exist (the message lists the
// outputs) or does not fit; a label name that another value has.
Value* AddLoss(Graph& graph, const LossSpec& spec);

}  // namespace onnx_fp8
