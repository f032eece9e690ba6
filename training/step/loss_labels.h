// SPDX-License-Identifier: Apache-2.0
// How the labels of a loss lie beside the outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "graph/builder.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The class label that is ignored; PyTorch's default.
inline constexpr int64_t kIgnoredLabel = -100;

// The dtype and shape of the labels that a batch feeds.
struct LabelType {
  DType dtype = DType::kUndefined;
  Shape shape;
  bool operator==(const LabelType&) const = default;
};

// The operands of a loss, after their axes were arranged. If the loss has
// classes, the output has the shape (N, C, D…). Its label has the shape (N,
// D…); a soft label holds probabilities and has the shape (N, C, D…). If the
// loss has no classes, output and label have the same shape.
struct LossOperands {
  Value* output;
  Value* label;
  bool soft = false;
};

// The axis of the logits along which the classes lie, from 0. It is the axis
// that the labels lack: 1, as in PyTorch, or the last one, as for tokens.
// `label`: none if nobody knows it yet; logits of rank 3 then count as tokens'.
// `file`: for messages. Errors: labels that fit no axis, or both while
// spec.class_axis is not given; a class axis that does not exist.
int64_t ClassAxis(const LossSpec& spec, const std::string& file,
                  const Value& logits, const std::optional<LabelType>& label);

// The shape of class labels for logits of that shape.
Shape WithoutAxis(Shape logits, int64_t axis);

// Classes to axis 1. REQUIRES: an axis of ClassAxis.
LossOperands ArrangeClasses(Builder& b, int64_t axis, Value* logits,
                            Value* label);

// Labels of numbers, in the output's shape. Errors: the shapes differ by more
// than axes of size 1 behind the first.
Value* LabelLike(Builder& b, const Value& output, Value* label);

}  // namespace onnx_fp8
