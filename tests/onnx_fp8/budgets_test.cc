// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/budgets.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

std::string TakeError(Spending& spending, Budget budget, int64_t amount) {
  try {
    spending.Take(budget, amount, "m.onnx");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Budgets, TextIsWhatTheFlagReads) {
  EXPECT_EQ(BudgetText(0), "0");
  EXPECT_EQ(BudgetText(1000), "1000");
  EXPECT_EQ(BudgetText(1536), "1536");
  EXPECT_EQ(BudgetText(2048), "2k");
  EXPECT_EQ(BudgetText(int64_t{3} << 20), "3M");
  EXPECT_EQ(BudgetText(int64_t{4} << 30), "4G");
  EXPECT_EQ(BudgetText(int64_t{5} << 40), "5120G");
}

TEST(Budgets, AllAreListedOnce) {
  Budgets budgets;
  for (const BudgetInfo& info : AllBudgets()) {
    EXPECT_GT(budgets.*info.of, 0) << info.name;
    budgets.*info.of = 0;
  }
  EXPECT_EQ(AllBudgets().size() * sizeof(int64_t), sizeof(Budgets));
}

TEST(Spending, EndsWithTheBudget) {
  Spending spending({.nodes = 2048});
  EXPECT_EQ(TakeError(spending, &Budgets::nodes, 2000), "");
  EXPECT_EQ(TakeError(spending, &Budgets::nodes, 48), "");
  EXPECT_TRUE(spending.Has(&Budgets::nodes, 0));
  EXPECT_FALSE(spending.Has(&Budgets::nodes, 1));
  EXPECT_EQ(TakeError(spending, &Budgets::nodes, 1),
            "[m.onnx] expected at most 2k nodes once loops and functions are "
            "unrolled, got more: `budget` nodes=N raises the budget \"nodes\"");
  EXPECT_TRUE(spending.Has(&Budgets::visits, 1));
}

TEST(Spending, GivesNothingBack) {
  Spending spending({.work = 10});
  EXPECT_EQ(TakeError(spending, &Budgets::work, INT64_MIN), "");
  EXPECT_FALSE(spending.Has(&Budgets::work, 11));
  EXPECT_NE(TakeError(spending, &Budgets::work, INT64_MAX), "");
  EXPECT_TRUE(spending.Has(&Budgets::work, 10));
}

}  // namespace
}  // namespace onnx_fp8
