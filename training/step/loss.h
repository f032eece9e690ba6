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
#include "training/step/loss_labels.h"

namespace onnx_fp8 {

struct LossKind {
  std::string_view name;
  // kInt64: labels are classes, and some of them do not count. kFloat: labels
  // have the output's shape.
  DType label;
  // The options of LossSpec that it takes, in backticks.
  std::string_view options;
  // The mean loss, of rank 0. The output is float, the label float or int64.
  Value* (*build)(Builder& b, const LossSpec& spec, const LossOperands& of);
  // A bool for each label: whether the output is right. Null: outputs of this
  // loss are not right or wrong. Output and label keep their own types.
  Value* (*hits)(Builder& b, const LossOperands& of) = nullptr;
  // Whether exp(loss) is a perplexity (IsLikelihood).
  bool likelihood = false;
  // Whether labels may also be probabilities of the classes.
  bool soft = false;
  // Whether the mean is over samples, not over elements.
  bool by_sample = false;
};

// The row with this name; null if there is none, as for "", "output:NAME" and
// files.
const LossKind* FindLoss(std::string_view kind);

// Whether exp(loss) is a perplexity: weights of classes and smoothed labels
// make other means.
bool IsLikelihood(const LossSpec& loss);

// NAME of "output:NAME", the kind of a loss that the model computes.
std::optional<std::string> OwnOutput(std::string_view kind);

// Whether the kind is the path of a loss in a file (training/step/loss_file.h).
bool IsLossFile(std::string_view kind);

// All kinds, for messages: "A, B, output:NAME or FILE.onnx".
std::string LossNames();

// Errors: OptionError for an option that is out of range, or that the loss does
// not take.
void CheckLossOptions(const LossSpec& spec);

// Appends the loss of `spec` to a forward graph and returns it; the graph's
// shapes may be unknown. The loss is fp32, of rank 0, named "loss" (or
// "loss_1", … if the model has a value of that name). It is not made a graph
// output.
//
// The label becomes a graph input named spec.label, unless there is one.
// `label`: its type; none: the type that the loss expects. Labels of classes
// and of single numbers may have or lack axes of size 1. The loss of
// "output:NAME" is that graph output, of one element.
//
// Errors: another kind; an output that does not exist (the message lists the
// outputs) or does not fit; a label name that another value has; a label that
// does not fit; classes that may lie along several axes.
Value* AddLoss(Graph& graph, const LossSpec& spec,
               const std::optional<LabelType>& label = {});

// `spec` with its output named, and the axis of its classes as `label` shows
// it. Errors: AddLoss's.
LossSpec ResolveLoss(const Graph& graph, const LossSpec& spec,
                     const std::optional<LabelType>& label);

// Output and label as the row's functions read them. REQUIRES: a kind of the
// table, known shapes. Errors: AddLoss's of labels that do not fit.
LossOperands LossOperandsOf(Builder& b, const LossSpec& spec, Value* output,
                            Value* label);

// The weight of a batch in a mean over batches: the number of the labels over
// which the loss is a mean, as int64, or the sum of the weights of their
// classes, as float. REQUIRES: a kind of the table, known shapes, the class
// axis of probabilities of rank 3 or more.
Value* CountedLabels(Builder& b, const LossSpec& spec, Value* label);

// Whether a batch may have labels of which none counts.
bool MayCountNone(const LossSpec& spec, DType label);

}  // namespace onnx_fp8
