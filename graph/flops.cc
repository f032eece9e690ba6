// SPDX-License-Identifier: Apache-2.0
//
// A product (M,K) · (K,N) is 2 M N K: y has M N elements. The rest follows from
// the definitions in ONNX's operator list and graph/schemas/attention.cc.
#include "graph/flops.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "graph/attention_shape.h"
#include "graph/einsum_equation.h"

namespace onnx_fp8 {
namespace {

double Elements(const Value& value) {
  return value.concrete() ? static_cast<double>(NumElements(*value.shape)) : 0;
}

// Every output element of a convolution is a sum over one filter. In a
// transposed convolution every input element is added to as many outputs.
double FilterFlops(const Value& w, const Value& by) {
  if (!w.concrete() || w.rank() == 0 || w.dim(0) == 0) return 0;
  return 2 * Elements(by) * (Elements(w) / static_cast<double>(w.dim(0)));
}

// The forward computes scores (d deep) and results (e). The backward computes
// the scores again, the gradients of probabilities (e) and of q, k (d) and v
// (e).
double ScoresFlops(const Node& node, bool backward) {
  auto z = ShapeOfAttention(node);
  if (!z) return 0;
  int64_t pairs = z->t * z->s;
  if (node.Int("causal", 0) != 0) {
    // Row i sees i + 1 columns, at most s.
    int64_t short_rows = std::min(z->t, z->s);
    pairs = short_rows * (short_rows + 1) / 2 + (z->t - short_rows) * z->s;
  }
  int64_t depth = backward ? 3 * z->d + 2 * z->e : z->d + z->e;
  return 2 * static_cast<double>(z->b * z->heads * pairs) *
         static_cast<double>(depth);
}

}  // namespace

double ConvFlops(const Node& node) {
  return FilterFlops(*node.in(1), *node.out(0));
}

double QuantizedConvFlops(const Node& node) {
  return FilterFlops(*node.in(3), *node.out(0));
}

double ConvTransposeFlops(const Node& node) {
  return FilterFlops(*node.in(1), *node.in(0));
}

double AttentionFlops(const Node& node) { return ScoresFlops(node, false); }

double AttentionGradFlops(const Node& node) { return ScoresFlops(node, true); }

// 2 M N K, with K one of a's axes: all but the last one count as one.
double ProductFlops(const Node& node) {
  const Value& a = *node.in(0);
  if (!a.concrete() || a.rank() == 0) return 0;
  auto last = static_cast<double>(a.dim(-1));
  bool transposed = !node.Is("MatMul") && node.Int("transA", 0) != 0;
  double k = !transposed ? last : last > 0 ? Elements(a) / last : 0;
  return 2 * Elements(*node.out(0)) * k;
}

// A multiplication per operand and an addition for every index of all labels.
double EinsumFlops(const Node& node) {
  size_t count = node.inputs().size();
  auto terms = EquationTerms(node.String("equation", ""), count, node.Where());
  // The k-th axis from the right under an ellipsis is -1 - k.
  std::map<int64_t, int64_t> sizes;
  for (size_t i = 0; i < count; ++i) {
    const Value* x = node.in(i);
    if (!x || !x->concrete()) return 0;
    size_t dots = terms[i].find('.');
    int64_t letters = std::ssize(terms[i]) - (dots == terms[i].npos ? 0 : 3);
    int64_t covered = x->rank() - letters;
    std::vector<int64_t> labels;
    for (size_t at = 0; at < terms[i].size(); ++at) {
      if (at != dots) {
        labels.push_back(terms[i][at]);
        continue;
      }
      for (int64_t k = covered; k-- > 0;) labels.push_back(-1 - k);
      at += 2;
    }
    size_t rank = std::min(labels.size(), x->shape->size());
    for (size_t axis = 0; axis < rank; ++axis) {
      int64_t& size = sizes[labels[axis]];
      size = std::max(size, (*x->shape)[axis]);
    }
  }
  double flops = static_cast<double>(count);
  for (const auto& [label, size] : sizes) flops *= static_cast<double>(size);
  return flops;
}

// Each step of each sample multiplies all elements of W (D,G·H,I), R (D,G·H,H).
double RecurrentFlops(const Node& node) {
  const Value *x = node.in(0), *w = node.in(1), *r = node.in(2);
  if (!x->concrete() || !w->concrete() || !r->concrete()) return 0;
  auto inputs = static_cast<double>(x->dim(-1));
  double samples = inputs > 0 ? Elements(*x) / inputs : 0;
  return 2 * samples * (Elements(*w) + Elements(*r));
}

// Every element of the result looks at a window.
double WindowFlops(const Node& node) {
  // `size` is LRN's.
  auto window = static_cast<double>(std::max<int64_t>(node.Int("size", 1), 1));
  for (int64_t size : node.Ints("kernel_shape")) {
    window *= static_cast<double>(size);
  }
  return window * Elements(*node.out(0));
}

double ElementFlops(const Node& node) {
  double most = 0;
  for (const auto* values : {&node.inputs(), &node.outputs()}) {
    for (const Value* value : *values) {
      if (value) most = std::max(most, Elements(*value));
    }
  }
  return most;
}

}  // namespace onnx_fp8
