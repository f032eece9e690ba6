// SPDX-License-Identifier: Apache-2.0
//
// A Reshape divides the list of the parts of all axes anew.
#include "graph/passes/strided_view.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

using Parts = std::vector<StridedAxis>;  // without axes of size 1

// The axes of a value as a view of itself.
std::vector<Parts> WholeAxes(const Shape& shape) {
  std::vector<Parts> axes(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1) axes[i].push_back({shape[i], stride});
    stride *= shape[i];
  }
  return axes;
}

struct PartedView {
  int64_t first = 0;
  std::vector<Parts> axes;

  int64_t rank() const { return static_cast<int64_t>(axes.size()); }

  Parts& At(int64_t axis) {
    return axes[static_cast<size_t>(axis < 0 ? axis + rank() : axis)];
  }

  // Takes `size` elements of an axis from element `start` on. False: they are
  // no strided part.
  bool Take(int64_t axis, int64_t start, int64_t size) {
    Parts& parts = At(axis);
    if (parts.size() > 1) return start == 0 && SizeOf(parts) == size;
    if (parts.empty()) return size == 1;
    first += start * parts[0].stride;
    parts[0].size = size;
    if (size == 1) parts.clear();
    return true;
  }

  bool Reshape(const Shape& shape) {
    Parts rest;
    for (const Parts& parts : axes) {
      for (const StridedAxis& part : parts) Append(&rest, part);
    }
    axes.assign(shape.size(), {});
    for (size_t i = shape.size(); i-- > 0;) {
      if (!TakeLast(shape[i], &rest, &axes[i])) return false;
    }
    return true;
  }

  static int64_t SizeOf(const Parts& parts) {
    int64_t size = 1;
    for (const StridedAxis& part : parts) size *= part.size;
    return size;
  }

 private:
  // Parts without a gap between them are one.
  static void Append(Parts* parts, const StridedAxis& part) {
    if (!parts->empty() && parts->back().stride == part.size * part.stride) {
      parts->back() = {parts->back().size * part.size, part.stride};
    } else {
      parts->push_back(part);
    }
  }

  // Moves the last `size` elements of `rest` to `axis`.
  static bool TakeLast(int64_t size, Parts* rest, Parts* axis) {
    while (size > 1) {
      if (rest->empty()) return false;
      StridedAxis& last = rest->back();
      if (last.size > size) {
        if (last.size % size != 0) return false;
        axis->insert(axis->begin(), {size, last.stride});
        last = {last.size / size, last.stride * size};
        return true;
      }
      if (size % last.size != 0) return false;
      axis->insert(axis->begin(), last);
      size /= last.size;
      rest->pop_back();
    }
    return true;
  }
};

// The ints of a constant operand; nullopt: it is none.
std::optional<std::vector<int64_t>> IntsOf(const Value* value) {
  if (!value || !value->is_constant()) return std::nullopt;
  return ToInts(value->data);
}

// A Slice with steps of 1.
bool Slice(const Node& node, const Value& y, PartedView* view) {
  auto starts = IntsOf(node.in(1)), axes = IntsOf(node.in(3)),
       steps = IntsOf(node.in(4));
  if (!starts || (node.in(3) && !axes) || (node.in(4) && !steps)) return false;
  if (steps && std::ranges::any_of(*steps, [](int64_t s) { return s != 1; })) {
    return false;
  }
  for (size_t i = 0; i < starts->size(); ++i) {
    int64_t axis = axes ? (*axes)[i] : static_cast<int64_t>(i);
    int64_t all = PartedView::SizeOf(view->At(axis)), start = (*starts)[i];
    start = std::clamp<int64_t>(start < 0 ? start + all : start, 0, all);
    if (!view->Take(axis, start, y.dim(axis))) return false;
  }
  return true;
}

bool GatherOne(const Node& node, PartedView* view) {
  auto index = IntsOf(node.in(1));
  if (!index || index->size() != 1) return false;
  int64_t axis = node.Int("axis", 0), i = index->front();
  if (axis < 0) axis += view->rank();
  int64_t all = PartedView::SizeOf(view->At(axis));
  if (i < 0) i += all;
  if (i < 0 || i >= all || !view->Take(axis, i, 1)) return false;
  auto at = view->axes.erase(view->axes.begin() + axis);
  view->axes.insert(at, static_cast<size_t>(node.in(1)->rank()), {});
  return true;
}

bool TakePart(const Node& node, const Value* y, PartedView* view) {
  int64_t axis = node.Int("axis", 0), start = 0;
  for (const Value* part : node.outputs()) {
    if (part == y) break;
    start += part->dim(axis);
  }
  return view->Take(axis, start, y->dim(axis));
}

void Turn(const Node& node, PartedView* view) {
  std::vector<Parts> before = view->axes;
  std::vector<int64_t> perm = node.Ints("perm");
  std::ranges::reverse(view->axes);
  for (size_t i = 0; i < perm.size(); ++i) {
    view->axes[i] = before[static_cast<size_t>(perm[i])];
  }
}

bool MovesOrSelects(OpForm form) {
  switch (form) {
    case OpForm::kCopy:
    case OpForm::kReshape:
    case OpForm::kTranspose:
    case OpForm::kSlice:
    case OpForm::kSplit:
    case OpForm::kGather:
      return true;
    default:
      return false;
  }
}

bool CanFollow(const Value& x) {
  return x.producer && MovesOrSelects(FactsOf(*x.producer).form) &&
         NumElements(*x.shape) > 0;
}

// Changes `view`, of the node's first operand, to the view of its result y.
// Returns false if y has none.
bool Apply(const Node& node, const Value* y, PartedView* view) {
  switch (FactsOf(node).form) {
    case OpForm::kReshape:
      return view->Reshape(*y->shape);
    case OpForm::kSlice:
      return Slice(node, *y, view);
    case OpForm::kSplit:
      return TakePart(node, y, view);
    case OpForm::kGather:
      return GatherOne(node, view);
    case OpForm::kTranspose:
      Turn(node, view);
      return true;
    default:  // a copy
      return true;
  }
}

}  // namespace

const StridedViews::Parted& StridedViews::PartedOf(Value* x) {
  std::vector<Value*> path = {x};
  while (!known_.contains(path.back()) && CanFollow(*path.back())) {
    path.push_back(path.back()->producer->in(0));
  }
  // From the operands to x.
  for (size_t i = path.size(); i-- > 0;) {
    Value* y = path[i];
    if (known_.contains(y)) continue;
    Parted whole = {y, 0, WholeAxes(*y->shape)};
    if (!CanFollow(*y)) {
      known_.emplace(y, std::move(whole));
      continue;
    }
    const Parted& from = known_.at(y->producer->in(0));
    PartedView view = {from.first, from.axes};
    Parted found = {from.root, 0, {}};
    if (Apply(*y->producer, y, &view)) {
      found.first = view.first;
      found.axes = std::move(view.axes);
    } else {
      found = std::move(whole);
    }
    known_.emplace(y, std::move(found));
  }
  return known_.at(x);
}

StridedView StridedViews::Of(Value* x) {
  const Parted& parted = PartedOf(x);
  // Each axis of x itself must have one stride.
  bool strided = std::ranges::all_of(
      parted.axes, [](const Parts& parts) { return parts.size() <= 1; });
  StridedView view = {
      strided ? parted.root : x, strided ? parted.first : 0, {}};
  for (const Parts& parts : strided ? parted.axes : WholeAxes(*x->shape)) {
    view.axes.push_back(parts.empty() ? StridedAxis{1, 0} : parts[0]);
  }
  return view;
}

}  // namespace onnx_fp8
