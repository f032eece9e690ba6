// SPDX-License-Identifier: Apache-2.0
#include "graph/same_graph.h"

#include <algorithm>
#include <type_traits>

namespace onnx_fp8 {
namespace {

bool SameValue(const Value* a, const Value* b) {
  if (!a || !b) return a == b;
  const bool same_type =
      a->dtype == b->dtype && a->shape == b->shape && a->narrow == b->narrow;
  if (a->name != b->name || !same_type || a->role != b->role ||
      a->is_input != b->is_input ||
      a->is_initializer() != b->is_initializer()) {
    return false;
  }
  const bool has_numbers = a->is_initializer() && a->role == Role::kNone;
  return !has_numbers || Identical(a->data, b->data);
}

bool SameAttribute(const Attribute& a, const Attribute& b) {
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        const T* y = std::get_if<T>(&b);
        if constexpr (std::is_same_v<T, Tensor>) {
          return y && Identical(x, *y);
        } else {
          return y && x == *y;
        }
      },
      a);
}

bool SameNode(const Node& a, const Node& b) {
  return a.op == b.op && a.domain == b.domain &&
         std::ranges::equal(a.inputs(), b.inputs(), SameValue) &&
         std::ranges::equal(a.outputs(), b.outputs(), SameValue) &&
         std::ranges::equal(
             a.attributes, b.attributes, [](const auto& x, const auto& y) {
               return x.first == y.first && SameAttribute(x.second, y.second);
             });
}

bool SameBinding(const StateBinding& a, const StateBinding& b) {
  return SameValue(a.state, b.state) && SameValue(a.next, b.next);
}

}  // namespace

bool SameGraph(const Graph& a, const Graph& b) {
  return a.opset == b.opset &&
         std::ranges::equal(a.inputs, b.inputs, SameValue) &&
         std::ranges::equal(a.nodes(), b.nodes(), SameNode) &&
         std::ranges::equal(a.outputs, b.outputs, SameValue) &&
         std::ranges::equal(a.state, b.state, SameBinding);
}

}  // namespace onnx_fp8
