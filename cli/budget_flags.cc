// SPDX-License-Identifier: Apache-2.0
#include "cli/budget_flags.h"

#include <charconv>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// "64", "64k", "64M", "64G"; -1 if the text is no such number, or beyond 64
// bits.
int64_t Amount(std::string text) {
  int64_t factor = 1;
  for (int i = 0; const char suffix : {'k', 'M', 'G'}) {
    ++i;
    if (!text.ends_with(suffix)) continue;
    factor = int64_t{1} << (10 * i);
    text.pop_back();
    break;
  }
  int64_t amount = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, amount);
  bool ok = error == std::errc() && stop == end && amount >= 0 &&
            !__builtin_mul_overflow(amount, factor, &amount);
  return ok ? amount : -1;
}

}  // namespace

void BudgetFlags::AddTo(Flags& flags) {
  std::string all;
  for (const BudgetInfo& info : AllBudgets()) {
    all += Concat(all.empty() ? "" : "; ", info.name, " (", info.unit, "; ",
                  BudgetText(Budgets().*info.of), ")");
  }
  flags.List(
      "--budget", &words,
      "NAME=N[k|M|G]: how much a file may ask for before a step runs: " + all);
}

Budgets BudgetFlags::Make() const {
  Budgets budgets;
  for (const std::string& word : words) {
    size_t split = word.find('=');
    std::string name = word.substr(0, split), names;
    int64_t amount =
        split == std::string::npos ? -1 : Amount(word.substr(split + 1));
    Budget budget = nullptr;
    for (const BudgetInfo& info : AllBudgets()) {
      names += Concat(names.empty() ? "" : ", ", info.name);
      if (name == info.name) budget = info.of;
    }
    if (!budget || amount < 0) {
      throw UsageError(
          Concat("--budget: expected NAME=N[k|M|G] with a name of ", names,
                 " and N from 0 to 2^63 - 1, got \"", word, "\""));
    }
    budgets.*budget = amount;
  }
  return budgets;
}

}  // namespace onnx_fp8
