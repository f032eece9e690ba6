// SPDX-License-Identifier: Apache-2.0
#include "graph/einsum_equation.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// True if the term is letters around at most one ellipsis.
bool IsTerm(std::string term) {
  size_t dots = term.find("...");
  if (dots != std::string::npos) term.erase(dots, 3);
  return std::ranges::all_of(term, IsLetter);
}

std::vector<std::string> Terms(const std::string& text) {
  std::vector<std::string> terms = {""};
  for (char c : text) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  return terms;
}

}  // namespace

std::vector<std::string> EquationTerms(const std::string& equation,
                                       size_t inputs,
                                       const std::string& where) {
  std::string text = equation;
  std::erase(text, ' ');
  size_t arrow = text.find("->");
  std::vector<std::string> terms = Terms(text.substr(0, arrow));
  std::set<char> known;
  bool fits = terms.size() == inputs;
  bool ellipsis = false;
  for (const std::string& term : terms) {
    fits = fits && IsTerm(term);
    ellipsis = ellipsis || term.find("...") != std::string::npos;
    known.insert(term.begin(), term.end());
  }
  if (fits && arrow != std::string::npos) {
    std::string output = text.substr(arrow + 2);
    fits =
        IsTerm(output) && (ellipsis || output.find("...") == std::string::npos);
    std::set<char> seen;
    for (char c : output) {
      fits = fits && known.contains(c) && (c == '.' || seen.insert(c).second);
    }
  }
  Check(fits, "[", where, "] expected an equation of ", inputs,
        " terms, such as \"bij,bjk->bik\", got \"", equation, "\"");
  return terms;
}

}  // namespace onnx_fp8
