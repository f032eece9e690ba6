// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/check.h"
#include "cli/flags.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

Budgets Parsed(const std::vector<std::string>& words) {
  Flags flags({"test", "", {{"", {"Budget"}}}, {}});
  flags.Parse({words});
  return BudgetsOf(flags);
}

TEST(BudgetFlags, RaiseAndLowerByName) {
  Budgets budgets = Parsed({"--budget", "nodes=10", "--budget",
                            "constants=3M,work=2G", "--budget", "nodes=7k"});
  EXPECT_EQ(budgets.nodes, 7 << 10);
  EXPECT_EQ(budgets.constants, 3 << 20);
  EXPECT_EQ(budgets.work, int64_t{2} << 30);
  EXPECT_EQ(budgets.visits, Budgets().visits);
  EXPECT_EQ(budgets.arrays, Budgets().arrays);
}

TEST(BudgetFlags, ReadWhatMessagesSay) {
  for (const BudgetInfo& info : AllBudgets()) {
    for (int64_t amount : {int64_t{0}, int64_t{1000}, int64_t{6} << 40}) {
      Budgets budgets =
          Parsed({"--budget", Concat(info.name, "=", BudgetText(amount))});
      EXPECT_EQ(budgets.*info.of, amount) << info.name;
    }
  }
}

TEST(BudgetFlags, Refuse) {
  for (const char* wrong :
       {"nodes", "nodes=", "nodes=-1", "nodes=1T", "nodes=1kk", "nodes=0x1",
        "nodes=k", "node=1", "=1", "nodes=9223372036854775808",
        "nodes=9007199254740992k"}) {
    EXPECT_THROW(Parsed({"--budget", wrong}), OptionError) << wrong;
  }
}

}  // namespace
}  // namespace onnx_fp8
