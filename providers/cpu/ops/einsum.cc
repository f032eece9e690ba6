// SPDX-License-Identifier: Apache-2.0
//
// Einstein sums: each element of the result is the sum, over all other labels,
// of the product of the operands. Two float operands go through the matrix
// product if possible; all other cases follow the definition.
#include <algorithm>
#include <map>
#include <type_traits>

#include "providers/arguments.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/register.h"
#include "providers/cpu/strided.h"
#include "providers/cpu/tasks.h"

namespace onnx_fp8 {
namespace {

// A letter, or -1 - k for the k-th axis from the right under an ellipsis.
using Label = int;
using Labels = std::vector<Label>;

struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char letter : text) {
    if (letter == separator) {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

// Labels of one term whose ellipsis, if it has one, covers `covered` axes.
Labels ParseTerm(const std::string& where, const std::string& term,
                 int64_t covered) {
  Labels labels;
  bool ellipsis = false;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == '.') {
      Check(!ellipsis && term.compare(i, 3, "...") == 0, "[", where,
            "] expected one ellipsis of three dots, got ", term);
      ellipsis = true;
      i += 2;
      for (int64_t k = covered; k-- > 0;) {
        labels.push_back(static_cast<Label>(-1 - k));
      }
    } else {
      bool letter = (term[i] >= 'a' && term[i] <= 'z') ||
                    (term[i] >= 'A' && term[i] <= 'Z');
      Check(letter, "[", where, "] expected letters and an ellipsis, got ",
            term);
      labels.push_back(term[i]);
    }
  }
  return labels;
}

// Without an output term: the axes under ellipses, then all letters that occur
// once, in alphabetical order.
Labels ImplicitResult(const std::vector<Labels>& operands, int64_t covered) {
  std::map<Label, int> uses;
  for (const Labels& labels : operands) {
    for (Label label : labels) ++uses[label];
  }
  Labels result;
  for (int64_t k = covered; k-- > 0;) {
    result.push_back(static_cast<Label>(-1 - k));
  }
  for (const auto& [label, count] : uses) {
    if (label >= 0 && count == 1) result.push_back(label);
  }
  return result;
}

Equation Parse(const KernelContext& ctx) {
  std::string where = ctx.Where(), text = ctx.String("equation", "");
  std::erase(text, ' ');
  size_t arrow = text.find("->");
  std::vector<std::string> terms = SplitAt(text.substr(0, arrow), ',');
  Check(terms.size() == ctx.num_inputs(), "[", where, "] expected ",
        terms.size(), " operands for ", text, ", got ", ctx.num_inputs());
  Equation equation;
  int64_t most_covered = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    bool ellipsis = terms[i].find('.') != std::string::npos;
    auto letters = static_cast<int64_t>(terms[i].size()) - (ellipsis ? 3 : 0);
    int64_t covered = Operand(ctx, i).rank() - letters;
    Check(ellipsis ? covered >= 0 : covered == 0, "[", where, "] expected ",
          letters, " axes for ", terms[i], ", got shape ",
          ToString(ctx.In(i).shape()));
    most_covered = std::max(most_covered, covered);
    equation.operands.push_back(ParseTerm(where, terms[i], covered));
  }
  equation.result =
      arrow == std::string::npos
          ? ImplicitResult(equation.operands, most_covered)
          : ParseTerm(where, text.substr(arrow + 2), most_covered);
  return equation;
}

// The loops: first the axes of the result, then the summed labels. strides[k]
// has operand k's stride per loop.
struct Loops {
  Shape size;
  size_t result_rank;
  std::vector<std::vector<int64_t>> strides;
};

// offsets[k][i]: the place in operand k of index i of loops first … last-1.
std::vector<std::vector<int64_t>> Offsets(const Loops& loops, size_t first,
                                          size_t last) {
  std::span<const int64_t> sizes =
      std::span(loops.size).subspan(first, last - first);
  std::vector<std::vector<int64_t>> offsets;
  for (const auto& all : loops.strides) {
    auto strides = std::span(all).subspan(first, last - first);
    auto& list = offsets.emplace_back();
    int64_t count = NumElements(sizes);
    if (count == 0) continue;
    Odometer<1> at(sizes, {strides});
    for (int64_t i = 0; i < count; ++i, at.Next()) {
      list.push_back(at.offset(0));
    }
  }
  return offsets;
}

Loops MakeLoops(const KernelContext& ctx, const Equation& equation) {
  std::map<Label, int64_t> sizes;
  for (size_t k = 0; k < equation.operands.size(); ++k) {
    const Shape& shape = ctx.In(k).shape();
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t& size =
          sizes.try_emplace(equation.operands[k][d], 1).first->second;
      Check(size == shape[d] || size == 1 || shape[d] == 1, "[", ctx.Where(),
            "] expected one size per label, got ", size, " and ", shape[d]);
      if (size == 1) size = shape[d];
    }
  }
  Labels order = equation.result;
  for (size_t i = 0; i < order.size(); ++i) {
    Check(sizes.contains(order[i]) &&
              std::find(order.begin(), order.begin() + static_cast<long>(i),
                        order[i]) == order.begin() + static_cast<long>(i),
          "[", ctx.Where(), "] expected each label of the result once, and in ",
          "an operand, got ", ctx.String("equation", ""));
  }
  for (const auto& [label, size] : sizes) {
    if (std::ranges::find(order, label) == order.end()) order.push_back(label);
  }
  Loops loops = {{}, equation.result.size(), {}};
  for (Label label : order) loops.size.push_back(sizes[label]);
  for (size_t k = 0; k < equation.operands.size(); ++k) {
    std::vector<int64_t> strides(order.size(), 0);
    const Shape& shape = ctx.In(k).shape();
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      auto at = std::ranges::find(order, equation.operands[k][d]);
      // If an operand has a label twice, the label walks its diagonal.
      if (shape[d] != 1) {
        strides[static_cast<size_t>(at - order.begin())] += step;
      }
      step *= shape[d];
    }
    loops.strides.push_back(strides);
  }
  return loops;
}

// Σ over i < n of the product of all operands at from[k] + i * step[k].
template <typename Sum, typename T>
Sum SumOfProducts(const std::vector<const T*>& from,
                  const std::vector<int64_t>& step, int64_t n) {
  Sum sum = 0;
  if (from.size() == 2) {
    const T *a = from[0], *b = from[1];
    int64_t sa = step[0], sb = step[1];
    for (int64_t i = 0; i < n; ++i) {
      sum += static_cast<Sum>(a[i * sa]) * static_cast<Sum>(b[i * sb]);
    }
    return sum;
  }
  for (int64_t i = 0; i < n; ++i) {
    Sum product = 1;
    for (size_t k = 0; k < from.size(); ++k) {
      product *= static_cast<Sum>(from[k][i * step[k]]);
    }
    sum += product;
  }
  return sum;
}

template <typename T>
void Evaluate(const std::vector<Tensor>& operands, const Loops& loops, T* y) {
  // Integers wrap around.
  using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  size_t count = operands.size(), rank = loops.size.size();
  // The last summed loop uses strides, the loops around it use tables.
  bool sums = rank > loops.result_rank;
  int64_t n = sums ? loops.size.back() : 1;
  auto around = Offsets(loops, loops.result_rank, sums ? rank - 1 : rank);
  std::vector<int64_t> step(count, 0);
  for (size_t k = 0; sums && k < count; ++k) step[k] = loops.strides[k].back();
  Shape outer(loops.size.begin(),
              loops.size.begin() + static_cast<long>(loops.result_rank));
  auto work = n * static_cast<int64_t>(around[0].size());
  ParallelFor(
      NumElements(outer), RowsPerTask(work), [&](int64_t begin, int64_t end) {
        std::vector<const T*> from(count);
        std::vector<Odometer<1>> at;
        for (const auto& strides : loops.strides) {
          std::span<const int64_t> all = strides;
          at.emplace_back(outer, std::array{all.first(outer.size())}, begin);
        }
        for (int64_t i = begin; i < end; ++i) {
          Sum sum = 0;
          for (size_t j = 0; j < around[0].size(); ++j) {
            for (size_t k = 0; k < count; ++k) {
              from[k] = static_cast<const T*>(operands[k].raw()) +
                        at[k].offset(0) + around[k][j];
            }
            sum += SumOfProducts<Sum>(from, step, n);
          }
          y[i] = static_cast<T>(sum);
          for (auto& place : at) place.Next();
        }
      });
}

// Loops that are packed together for a matrix product, and their strides in
// both operands and in the result.
struct LoopGroup {
  Shape size;
  std::vector<int64_t> a, b, y;

  void Add(const LoopGroup& other) {
    size.insert(size.end(), other.size.begin(), other.size.end());
    a.insert(a.end(), other.a.begin(), other.a.end());
    b.insert(b.end(), other.b.begin(), other.b.end());
    y.insert(y.end(), other.y.begin(), other.y.end());
  }
};

LoopGroup Join(std::initializer_list<const LoopGroup*> groups) {
  LoopGroup all;
  for (const LoopGroup* group : groups) all.Add(*group);
  return all;
}

// y (batch…, m…, n…) = Σ_k a (batch…, m…, k…) · b (batch…, k…, n…); each group
// is a set of loops in any order. False if the equation has another form: a
// label that is summed in one operand only.
bool EvaluateAsProduct(const Tensor& a, const Tensor& b, const Loops& loops,
                       Tensor& y) {
  LoopGroup batch, m, n, k;
  std::vector<int64_t> y_strides = Strides(y.shape());
  for (size_t i = 0; i < loops.size.size(); ++i) {
    int64_t sa = loops.strides[0][i], sb = loops.strides[1][i];
    bool summed = i >= loops.result_rank;
    if (loops.size[i] == 0) return false;
    if (loops.size[i] == 1) continue;
    if (summed && (sa == 0 || sb == 0)) return false;
    LoopGroup& group = summed ? k : sb == 0 ? m : sa == 0 ? n : batch;
    group.Add({{loops.size[i]}, {sa}, {sb}, {summed ? 0 : y_strides[i]}});
  }
  size_t width = ByteSize(y.dtype());
  auto pack = [&](const LoopGroup& group, const Tensor& x,
                  const std::vector<int64_t>& strides) {
    Tensor packed = Tensor::Allocate(x.dtype(), group.size);
    CopyStrided(group.size, width, x.raw(), strides, packed.raw(),
                Strides(group.size));
    return packed;
  };
  LoopGroup of_a = Join({&batch, &m, &k}), of_b = Join({&batch, &k, &n});
  LoopGroup of_y = Join({&batch, &m, &n});
  Tensor pa = pack(of_a, a, of_a.a), pb = pack(of_b, b, of_b.b);
  Tensor py = Tensor::Allocate(y.dtype(), of_y.size);
  GemmProblem problem = {.m = NumElements(m.size),
                         .n = NumElements(n.size),
                         .k = NumElements(k.size),
                         .c = py.raw()};
  problem.a = {pa.raw(), y.dtype(), problem.k, false};
  problem.b = {pb.raw(), y.dtype(), problem.n, false};
  std::vector<GemmOffsets> offsets;
  for (int64_t i = 0; i < NumElements(batch.size); ++i) {
    offsets.push_back({i * problem.m * problem.k, i * problem.k * problem.n,
                       i * problem.m * problem.n});
  }
  BatchedGemm(problem, offsets);
  CopyStrided(of_y.size, width, py.raw(), Strides(of_y.size), y.raw(), of_y.y);
  return true;
}

void Einsum(KernelContext& ctx) {
  Equation equation = Parse(ctx);
  DType dtype = Operand(ctx, 0).dtype();
  std::vector<Tensor> operands;
  for (size_t i = 0; i < ctx.num_inputs(); ++i) {
    CheckSameDType(ctx, ctx.In(0), ctx.In(i));
    operands.push_back(ctx.In(i));
  }
  Loops loops = MakeLoops(ctx, equation);
  Shape shape(loops.size.begin(),
              loops.size.begin() + static_cast<long>(loops.result_rank));
  Tensor& y = ctx.Out(0, dtype, shape);
  if (y.size() == 0) return;
  bool product = IsFloat(dtype) && operands.size() == 2 &&
                 EvaluateAsProduct(operands[0], operands[1], loops, y);
  if (product) return;
  DispatchNumeric(dtype, ctx.Where(), [&]<typename T>() {
    Evaluate(operands, loops, y.data<T>());
  });
}

}  // namespace

void RegisterEinsum(KernelRegistry& r) { r.Add("Einsum", Widened<Einsum>); }

}  // namespace onnx_fp8
