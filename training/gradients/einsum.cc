// SPDX-License-Identifier: Apache-2.0
//
// The gradient of a sum of products is a sum of products in which the operand
// and the result change places: "ij,jk->ik" gives "ik,jk->ij" and "ij,ik->jk".
#include <algorithm>

#include "training/gradients/rule.h"

namespace onnx_fp8 {
namespace {

using C = GradientContext;

struct Equation {
  std::vector<std::string> inputs;  // one letter per axis, no ellipsis
  std::string output;
};

bool IsLetter(char ch) {
  return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
}

// The letters of one term; an ellipsis becomes the last letters of `axes`.
std::string Term(const std::string& text, size_t ellipsis_rank,
                 const std::string& axes) {
  std::string term;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsLetter(text[i])) {
      term += text[i];
    } else if (text.compare(i, 3, "...") == 0) {
      term += axes.substr(axes.size() - ellipsis_rank);
      i += 2;
    }
  }
  return term;
}

size_t Letters(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, IsLetter));
}

std::vector<std::string> SplitTerms(const std::string& text) {
  std::vector<std::string> terms = {""};
  for (char ch : text) {
    if (ch == ',') {
      terms.push_back("");
    } else {
      terms.back() += ch;
    }
  }
  return terms;
}

Equation Parse(C& c) {
  std::string text = c.node.String("equation", "");
  std::erase(text, ' ');
  size_t arrow = text.find("->");
  std::vector<std::string> terms = SplitTerms(text.substr(0, arrow));
  Check(terms.size() == c.node.inputs().size(), "[", c.node.Where(),
        "] expected one term per operand, got ", text);
  // Letters for the axes that ellipses stand for.
  size_t most = 0;
  std::vector<size_t> ranks;
  for (size_t i = 0; i < terms.size(); ++i) {
    size_t rank = c.In(i)->shape->size(), letters = Letters(terms[i]);
    bool ellipsis = terms[i].find("...") != std::string::npos;
    Check(ellipsis ? rank >= letters : rank == letters, "[", c.node.Where(),
          "] expected operand ", i, " to fit \"", terms[i], "\", got rank ",
          rank);
    ranks.push_back(ellipsis ? rank - letters : 0);
    most = std::max(most, ranks.back());
  }
  std::string axes;
  for (char ch = 'A'; ch <= 'z' && axes.size() < most; ++ch) {
    if (IsLetter(ch) && text.find(ch) == std::string::npos) axes += ch;
  }
  Check(axes.size() == most, "[", c.node.Where(),
        "] expected at most 52 axes in all");
  Equation e;
  for (size_t i = 0; i < terms.size(); ++i) {
    e.inputs.push_back(Term(terms[i], ranks[i], axes));
  }
  if (arrow != std::string::npos) {
    e.output = Term(text.substr(arrow + 2), most, axes);
    return e;
  }
  // Without an output term: the ellipsis, then letters that occur once, sorted.
  e.output = axes;
  for (char ch = 'A'; ch <= 'z'; ++ch) {
    if (IsLetter(ch) && std::ranges::count(text, ch) == 1) e.output += ch;
  }
  return e;
}

// Without an ellipsis in the output its axes are summed; NumPy refuses that
// too.
void CheckDifferent(const C& c, const std::string& term) {
  for (char ch : term) {
    Check(std::ranges::count(term, ch) == 1, "[", c.node.Where(),
          "] expected different letters within a term for the gradient, got "
          "\"",
          term, "\"");
  }
}

Value* InputGradient(C& c, const Equation& e, size_t wanted) {
  Builder& b = c.b;
  std::vector<Value*> operands = {c.Dy()};
  std::string left = e.output;
  std::string known = e.output;
  for (size_t i = 0; i < e.inputs.size(); ++i) {
    if (i == wanted) continue;
    operands.push_back(c.In(i));
    left += "," + e.inputs[i];
    known += e.inputs[i];
  }
  std::string right;
  for (char ch : e.inputs[wanted]) {
    if (known.find(ch) != std::string::npos) right += ch;
  }
  Value* dx = b.Op("Einsum", operands, {{"equation", left + "->" + right}});
  // Axes that only this operand has, or that have one element elsewhere, were
  // summed: dx is the same along them. Broadcast axes may be wider than the
  // operand's.
  Shape reshaped, full;
  size_t at = 0, from = 0;
  for (char ch : e.inputs[wanted]) {
    bool found = known.find(ch) != std::string::npos;
    reshaped.push_back(found ? (*dx->shape)[from++] : 1);
    full.push_back(reshaped.back() == 1 ? (*c.In(wanted)->shape)[at]
                                        : reshaped.back());
    ++at;
  }
  return ExpandTo(b, b.Reshape(dx, reshaped), full);
}

void Einsum(C& c) {
  Equation e = Parse(c);
  CheckDifferent(c, e.output);
  for (const std::string& term : e.inputs) CheckDifferent(c, term);
  for (size_t i = 0; i < e.inputs.size(); ++i) {
    if (c.Needs(i)) c.Set(i, InputGradient(c, e, i));
  }
}

}  // namespace

void RegisterEinsumGradients(GradientRegistry& r) { r.Add("Einsum", Einsum); }

}  // namespace onnx_fp8
