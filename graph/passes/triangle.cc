// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/triangle.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <vector>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {
namespace {

constexpr int kMaxDepth = 32;  // of nodes behind each other

// A value as a function of row i and column j.
struct Pattern {
  enum Kind { kTriangle, kRows, kColumns } kind;
  Triangle triangle = {};  // of kTriangle
  double start = 0;        // kRows: start + i; kColumns: start + j
};

using Found = std::optional<Pattern>;

Found Uniform(double x) { return Pattern{Pattern::kTriangle, {x, x}}; }

bool IsUniform(const Pattern& p) {
  return p.kind == Pattern::kTriangle && p.triangle.lower == p.triangle.upper;
}

// start, start + 1, … along the last axis or the one before it; all other axes
// have one element.
Found Count(const Value* value, int64_t n, double start) {
  auto along = [&](int64_t axis) {
    return value->rank() >= axis && value->dim(-axis) == n;
  };
  if (NumElements(*value->shape) != n) return {};
  if (along(1)) return Pattern{Pattern::kColumns, {}, start};
  if (along(2)) return Pattern{Pattern::kRows, {}, start};
  return {};
}

// Calls fn(pointer to the elements) for a tensor of a dtype that masks have;
// false for another one.
template <typename Fn>
bool WithElements(const Tensor& x, const Fn& fn) {
  switch (x.dtype()) {
    case DType::kFloat:
      fn(x.data<float>());
      return true;
    case DType::kDouble:
      fn(x.data<double>());
      return true;
    case DType::kInt32:
      fn(x.data<int32_t>());
      return true;
    case DType::kInt64:
      fn(x.data<int64_t>());
      return true;
    case DType::kBool:
      fn(x.data<bool>());
      return true;
    default:
      return false;
  }
}

// The first n rows and columns of all matrices of x.
Found Corner(const Tensor& x, int64_t n) {
  if (x.rank() < 2 || x.dim(-1) < n || x.dim(-2) < n || n < 2) return {};
  int64_t height = x.dim(-2), rows = x.size() / x.dim(-1);
  Found found;
  WithElements(x, [&](auto at) {
    auto lower = at[0], upper = at[1];
    for (int64_t row = 0; row < rows; ++row, at += x.dim(-1)) {
      int64_t i = row % height;
      if (i >= n) continue;
      bool fits =
          std::all_of(at, at + i + 1, [&](auto e) { return e == lower; }) &&
          std::all_of(at + i + 1, at + n, [&](auto e) { return e == upper; });
      if (!fits) return;
    }
    found = Pattern{Pattern::kTriangle,
                    {static_cast<double>(lower), static_cast<double>(upper)}};
  });
  return found;
}

Found Constant(const Value* value, int64_t n) {
  const Tensor& x = value->data;
  if (x.size() == 0) return {};
  Found found;
  WithElements(x, [&](auto at) {
    if (std::all_of(at, at + x.size(), [&](auto e) { return e == *at; })) {
      found = Uniform(static_cast<double>(*at));
    } else if (x.size() == n) {
      for (int64_t i = 0; i < n; ++i) {
        if (static_cast<double>(at[i]) !=
            static_cast<double>(at[0]) + static_cast<double>(i)) {
          return;
        }
      }
      found = Count(value, n, static_cast<double>(at[0]));
    }
  });
  bool square = x.rank() >= 2 && x.dim(-1) == n && x.dim(-2) == n;
  return found || !square ? found : Corner(x, n);
}

class Reader {
 public:
  explicit Reader(int64_t n) : n_(n) {}

  Found Read(const Value* value, int depth) {
    if (!value || !value->concrete() || depth > kMaxDepth) return {};
    // A value may be read by many nodes behind each other.
    auto known = known_.find(value);
    if (known == known_.end()) {
      known = known_.emplace(value, Make(value, depth)).first;
    }
    return known->second;
  }

 private:
  Found Make(const Value* value, int depth) {
    if (value->is_constant()) return Constant(value, n_);
    const Node* node = value->producer;
    if (!node || value != node->out(0)) return {};
    if (node->Is("ConstantOfShape")) return Filled(*node);
    if (node->Is("Slice")) return Sliced(*node);
    if (!node->domain.empty() || node->inputs().empty()) return {};
    std::vector<Pattern> in;
    for (const Value* operand : Operands(*node)) {
      Found found = Read(operand, depth + 1);
      if (!found) return {};
      in.push_back(*found);
    }
    if (node->Is("Trilu")) return Cut(*node, in[0]);
    if (MovesAxes(*node)) return Moved(value, in[0]);
    if (node->Is("Expand")) return in[0];
    if (node->Is("Cast")) return Cast(in[0], value->dtype);
    return Computed(*node, in);
  }

  static bool MovesAxes(const Node& node) {
    return node.Is("Reshape") || node.Is("Unsqueeze") || node.Is("Squeeze") ||
           node.Is("Identity");
  }

  // Data operands: without shapes, axes and a Trilu's diagonal.
  static std::vector<Value*> Operands(const Node& node) {
    bool first = MovesAxes(node) || node.Is("Expand") || node.Is("Trilu");
    return first ? std::vector<Value*>{node.in(0)} : node.inputs();
  }

  static Found Filled(const Node& node) {
    const Tensor* fill = node.TensorAttribute("value");
    Found found = Uniform(0);
    if (!fill) return found;
    bool known = WithElements(
        *fill, [&](auto at) { found = Uniform(static_cast<double>(*at)); });
    return known ? found : Found{};
  }

  // The corner of a constant: a mask for longer sequences.
  Found Sliced(const Node& node) const {
    const Value *from = node.in(0), *starts = node.in(1), *steps = node.in(4);
    auto all = [](const Value* x, int64_t number) {
      return x->is_constant() &&
             std::ranges::all_of(ToInts(x->data),
                                 [&](int64_t e) { return e == number; });
    };
    const Value* to = node.out(0);
    bool corner = from->is_constant() && starts && all(starts, 0) &&
                  (!steps || all(steps, 1)) && to->rank() >= 2 &&
                  to->dim(-1) == n_ && to->dim(-2) == n_;
    return corner ? Corner(from->data, n_) : Found{};
  }

  Found Cut(const Node& node, const Pattern& x) const {
    const Value* k = node.in(1);
    if (!IsUniform(x) || (k && (!k->is_constant() || k->data.size() != 1))) {
      return {};
    }
    int64_t diagonal = k ? ToInts(k->data)[0] : 0;
    double fill = x.triangle.lower;
    bool upper = node.Int("upper", 1) != 0;
    if (diagonal != (upper ? 1 : 0)) return {};
    return IsMatrix(node.out(0))
               ? Pattern{Pattern::kTriangle,
                         upper ? Triangle{0, fill} : Triangle{fill, 0}}
               : Found{};
  }

  bool IsMatrix(const Value* value) const {
    return value->rank() >= 2 && value->dim(-1) == n_ && value->dim(-2) == n_;
  }

  // The same elements under other axes.
  Found Moved(const Value* value, const Pattern& x) const {
    if (IsUniform(x)) return x;
    if (x.kind != Pattern::kTriangle) return Count(value, n_, x.start);
    return IsMatrix(value) ? x : Found{};
  }

  static Found Cast(Pattern x, DType to) {
    if (x.kind != Pattern::kTriangle)
      return IsFloat(to) || IsInt(to) ? x : Found{};
    for (double* number : {&x.triangle.lower, &x.triangle.upper}) {
      if (to == DType::kBool) {
        *number = *number != 0;
      } else if (!IsFloat(to) &&
                 (!IsInt(to) || std::trunc(*number) != *number)) {
        return {};
      }
    }
    return x;
  }

  static bool IsFloat(DType t) {
    return t == DType::kFloat || t == DType::kDouble;
  }
  static bool IsInt(DType t) {
    return t == DType::kInt32 || t == DType::kInt64;
  }

  using Numbers = std::vector<double>;

  // The number that an elementwise op makes of numbers; none for another op.
  static std::optional<double> Number(const Node& node, const Numbers& x) {
    if (x.size() == 1) {
      if (node.Is("Not")) return x[0] == 0;
      if (node.Is("Neg")) return -x[0];
    } else if (x.size() == 2) {
      if (node.Is("Add")) return x[0] + x[1];
      if (node.Is("Sub")) return x[0] - x[1];
      if (node.Is("Mul")) return x[0] * x[1];
      if (node.Is("And")) return x[0] != 0 && x[1] != 0;
      if (node.Is("Or")) return x[0] != 0 || x[1] != 0;
      if (node.Is("Equal")) return x[0] == x[1];
      if (node.Is("Less")) return x[0] < x[1];
      if (node.Is("LessOrEqual")) return x[0] <= x[1];
      if (node.Is("Greater")) return x[0] > x[1];
      if (node.Is("GreaterOrEqual")) return x[0] >= x[1];
    } else if (x.size() == 3 && node.Is("Where")) {
      return x[0] != 0 ? x[1] : x[2];
    }
    return {};
  }

  static Found Computed(const Node& node, const std::vector<Pattern>& in) {
    bool triangles = std::ranges::all_of(
        in, [](const Pattern& p) { return p.kind == Pattern::kTriangle; });
    if (!triangles)
      return in.size() == 2 ? Counted(node, in[0], in[1]) : Found{};
    Numbers lower, upper;
    for (const Pattern& p : in) {
      lower.push_back(p.triangle.lower);
      upper.push_back(p.triangle.upper);
    }
    auto a = Number(node, lower), b = Number(node, upper);
    if (!a || !b || std::isnan(*a) || std::isnan(*b)) return {};
    return Pattern{Pattern::kTriangle, {*a, *b}};
  }

  // Rows compared with columns, or moved by a number.
  static Found Counted(const Node& node, const Pattern& a, const Pattern& b) {
    bool adds = node.Is("Add"),
         compares = node.Is("Less") || node.Is("LessOrEqual") ||
                    node.Is("Greater") || node.Is("GreaterOrEqual");
    if ((adds && IsUniform(a)) || ((adds || node.Is("Sub")) && IsUniform(b))) {
      Pattern moved = IsUniform(a) ? b : a;
      double by = (IsUniform(a) ? a : b).triangle.lower;
      moved.start += node.Is("Sub") ? -by : by;
      return moved;
    }
    bool both = (a.kind == Pattern::kRows && b.kind == Pattern::kColumns) ||
                (a.kind == Pattern::kColumns && b.kind == Pattern::kRows);
    if (!compares || !both) return {};
    // It depends on j - i alone, and changes once: between 0 and 1, or
    // elsewhere.
    auto at = [&](double columns_ahead) {
      return *Number(
          node, {a.start + (a.kind == Pattern::kColumns ? columns_ahead : 0),
                 b.start + (b.kind == Pattern::kColumns ? columns_ahead : 0)});
    };
    if (at(0) == at(1)) return {};
    return Pattern{Pattern::kTriangle, {at(0), at(1)}};
  }

  int64_t n_;
  std::unordered_map<const Value*, Found> known_;
};

}  // namespace

std::optional<Triangle> TriangleIn(const Value* value, int64_t n) {
  Found found = Reader(n).Read(value, 0);
  if (!found || found->kind != Pattern::kTriangle) return {};
  return found->triangle;
}

}  // namespace onnx_fp8
