// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/budgets.h"

#include "base/check.h"

namespace onnx_fp8 {

const std::vector<BudgetInfo>& AllBudgets() {
  static const std::vector<BudgetInfo> all = {
      {"constants", &Budgets::constants, "bytes of folded constants"},
      {"nodes", &Budgets::nodes, "nodes once loops and functions are unrolled"},
      {"visits", &Budgets::visits, "nodes visited, those of a loop each time"},
      {"work", &Budgets::work, "operations of folding"},
      {"arrays", &Budgets::arrays, "bytes of inflated arrays"},
  };
  return all;
}

std::string BudgetText(int64_t amount) {
  const char* suffixes[] = {"", "k", "M", "G"};
  size_t i = 0;
  while (i < 3 && amount > 0 && amount % 1024 == 0) {
    amount /= 1024;
    ++i;
  }
  return Concat(amount, suffixes[i]);
}

void Spending::Refuse(Budget budget, const std::string& who) const {
  for (const BudgetInfo& info : AllBudgets()) {
    if (info.of != budget) continue;
    Fail("[", who, "] expected at most ", BudgetText(budgets_.*budget), " ",
         info.unit, ", got more: `budget` ", info.name,
         "=N raises the budget \"", info.name, "\"");
  }
  Fail("[", who, "] goes beyond a budget");
}

}  // namespace onnx_fp8
