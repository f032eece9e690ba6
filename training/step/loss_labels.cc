// SPDX-License-Identifier: Apache-2.0
#include "training/step/loss_labels.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

// The same number of axes, and no two sizes that differ.
bool SameShape(const Shape& a, const Shape& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) {
    same = a[i] == b[i] || a[i] < 0 || b[i] < 0;
  }
  return same;
}

Shape WithOne(Shape shape, int64_t axis) {
  shape[static_cast<size_t>(axis)] = 1;
  return shape;
}

bool IsSoft(const Value& logits, const LabelType& label) {
  return IsFloat(label.dtype) && SameShape(label.shape, *logits.shape);
}

// Whether these labels fit if the classes lie along that axis.
bool Fits(const Value& logits, int64_t axis, const LabelType& label) {
  if (IsFloat(label.dtype)) return IsSoft(logits, label);
  return SameShape(label.shape, WithoutAxis(*logits.shape, axis)) ||
         SameShape(label.shape, WithOne(*logits.shape, axis));
}

std::vector<int64_t> Fitting(const Value& logits,
                             const std::vector<int64_t>& axes,
                             const LabelType& label) {
  std::vector<int64_t> exact, fitting;
  for (int64_t axis : axes) {
    if (!Fits(logits, axis, label)) continue;
    fitting.push_back(axis);
    bool lacks = SameShape(label.shape, WithoutAxis(*logits.shape, axis));
    if (lacks) exact.push_back(axis);
  }
  return exact.empty() ? fitting : exact;
}

std::string ShapesText(const Value& logits, const std::vector<int64_t>& axes) {
  std::string text;
  for (int64_t axis : axes) {
    text += text.empty() ? "" : " or ";
    text += ToString(WithoutAxis(*logits.shape, axis));
    if (logits.rank() > 2) text += Concat(" (classes along axis ", axis, ")");
  }
  return text;
}

[[noreturn]] void RefuseLabels(const LossSpec& spec, const std::string& file,
                               const Value& logits,
                               const std::vector<int64_t>& axes,
                               const LabelType& label) {
  if (IsFloat(label.dtype)) {
    Fail("[", file, "] expected float labels \"", spec.label,
         "\", which are probabilities of the classes, of the shape ",
         ToString(*logits.shape), " of \"", logits.name, "\", got ",
         ToString(label.shape), "; numbers of classes are integers");
  }
  Fail("[", file, "] expected labels of shape ", ShapesText(logits, axes),
       ", got ", ToString(label.shape), " in input \"", spec.label, "\"",
       label.shape == *logits.shape
           ? "; labels of the logits' shape are probabilities, of float"
           : "");
}

int64_t ChosenAxis(const LossSpec& spec, const std::string& file,
                   const Value& logits) {
  const int64_t rank = logits.rank();
  const int64_t axis = *spec.class_axis + (*spec.class_axis < 0 ? rank : 0);
  const int64_t first = rank == 1 ? 0 : 1;  // the first axis is the batch
  if (axis < first || axis >= rank) {
    throw OptionError(Concat("[", file, "] `class_axis`: expected ", first,
                             " to ", rank - 1, " for \"", logits.name,
                             "\" of shape ", ToString(*logits.shape), ", got ",
                             *spec.class_axis));
  }
  return axis;
}

}  // namespace

Shape WithoutAxis(Shape logits, int64_t axis) {
  logits.erase(logits.begin() + axis);
  return logits;
}

int64_t ClassAxis(const LossSpec& spec, const std::string& file,
                  const Value& logits, const std::optional<LabelType>& label) {
  const int64_t rank = logits.rank();
  std::vector<int64_t> axes = {1, rank - 1};
  if (rank <= 2) axes = {rank - 1};
  if (spec.class_axis) axes = {ChosenAxis(spec, file, logits)};
  if (!label) {
    Check(axes.size() == 1 || rank == 3, "[", file, "] expected the axis of \"",
          logits.name, "\", of shape ", ToString(*logits.shape),
          ", along which the classes lie: `class_axis` 1 is PyTorch's, "
          "`class_axis` -1 that of tokens");
    return axes.back();
  }
  std::vector<int64_t> fitting = Fitting(logits, axes, *label);
  if (fitting.empty()) RefuseLabels(spec, file, logits, axes, *label);
  Check(fitting.size() == 1, "[", file, "] expected one axis of \"",
        logits.name, "\", of shape ", ToString(*logits.shape),
        ", along which the classes lie, but the labels \"", spec.label,
        "\" of shape ", ToString(label->shape),
        " fit two: `class_axis` 1 is PyTorch's, `class_axis` -1 that of "
        "tokens");
  return fitting[0];
}

LossOperands ArrangeClasses(Builder& b, int64_t axis, Value* logits,
                            Value* label) {
  const bool soft = IsFloat(label->dtype);
  const int64_t rank = logits->shape ? logits->rank() : axis + 1;
  if (axis == 1 && rank > 2) {
    if (!soft) label = b.Reshape(label, WithoutAxis(*logits->shape, 1));
    return {logits, label, soft};
  }
  // As (N, C) and (N).
  if (axis != rank - 1) {
    std::vector<int64_t> perm(static_cast<size_t>(rank));
    std::iota(perm.begin(), perm.end(), 0);
    std::rotate(perm.begin() + axis, perm.begin() + axis + 1, perm.end());
    logits = b.Transpose(logits, perm);
    if (soft) label = b.Transpose(label, perm);
  }
  const Attributes last = {{"axis", int64_t{-1}}};
  Value* rows = b.Op("Flatten", {logits}, last);
  return {rows,
          soft ? b.Op("Flatten", {label}, last)
               : b.Op("Reshape", {label, b.Ints({-1})}),
          soft};
}

Value* LabelLike(Builder& b, const Value& output, Value* label) {
  if (!output.concrete() || !label->concrete()) return label;
  auto sizes = [](const Shape& shape) {
    Shape sizes;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i == 0 || shape[i] != 1) sizes.push_back(shape[i]);
    }
    return sizes;
  };
  Check(sizes(*label->shape) == sizes(*output.shape), "[", b.graph().file,
        "] expected labels of shape ", ToString(*output.shape), ", got ",
        ToString(*label->shape), " in input \"", label->name, "\"");
  return b.Reshape(label, *output.shape);
}

}  // namespace onnx_fp8
