// SPDX-License-Identifier: Apache-2.0
#include "providers/ops/einsum.h"

#include <algorithm>
#include <map>

#include "providers/ops/arguments.h"

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

Equation ParseEquation(const KernelContext& ctx) {
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

EinsumLoops MakeLoops(const KernelContext& ctx, const Equation& equation) {
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
  EinsumLoops loops = {{}, equation.result.size(), {}};
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

LoopGroup JoinGroups(std::initializer_list<const LoopGroup*> groups) {
  LoopGroup all;
  for (const LoopGroup* group : groups) all.Add(*group);
  return all;
}

}  // namespace

EinsumLoops EinsumLoopsOf(const KernelContext& ctx) {
  return MakeLoops(ctx, ParseEquation(ctx));
}

void LoopGroup::Add(const LoopGroup& other) {
  size.insert(size.end(), other.size.begin(), other.size.end());
  a.insert(a.end(), other.a.begin(), other.a.end());
  b.insert(b.end(), other.b.begin(), other.b.end());
  y.insert(y.end(), other.y.begin(), other.y.end());
}

std::optional<EinsumProduct> EinsumProductOf(const EinsumLoops& loops) {
  if (loops.strides.size() != 2) return std::nullopt;
  LoopGroup batch, m, n, k;
  std::vector<int64_t> y_strides = Strides(loops.Result());
  for (size_t i = 0; i < loops.size.size(); ++i) {
    int64_t sa = loops.strides[0][i], sb = loops.strides[1][i];
    bool summed = i >= loops.result_rank;
    if (loops.size[i] == 0) return std::nullopt;
    if (loops.size[i] == 1) continue;
    if (summed && (sa == 0 || sb == 0)) return std::nullopt;
    LoopGroup& group = summed ? k : sb == 0 ? m : sa == 0 ? n : batch;
    group.Add({{loops.size[i]}, {sa}, {sb}, {summed ? 0 : y_strides[i]}});
  }
  return EinsumProduct{
      JoinGroups({&batch, &m, &k}), JoinGroups({&batch, &k, &n}),
      JoinGroups({&batch, &m, &n}), NumElements(batch.size),
      NumElements(m.size),          NumElements(n.size),
      NumElements(k.size)};
}

}  // namespace onnx_fp8
