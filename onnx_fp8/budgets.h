// SPDX-License-Identifier: Apache-2.0
//
// How much a file may ask for before a step runs. A kilobyte can hold a loop
// that takes hours or fills the memory; honest files stay far below these
// bounds. All budgets count work, never seconds: a file passes everywhere or
// nowhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace onnx_fp8 {

// The first four hold for one plan: one graph of one shape signature.
struct Budgets {
  // Bytes of the constants that folding makes; weights are not counted.
  int64_t constants = int64_t{4} << 30;
  // Nodes of the model with functions inlined; nodes of the forward graph with
  // loops and recurrent layers unrolled; nodes of op bodies.
  int64_t nodes = int64_t{256} << 10;
  // Nodes that are visited while the graph is specialized. A loop's body counts
  // once per iteration, and so does the iteration itself.
  int64_t visits = int64_t{1} << 20;
  // Operations of folding: in products and windows each multiplication and
  // addition, in other ops one per element.
  int64_t work = int64_t{8} << 30;
  // Bytes that the arrays of one .npz inflate to; unread arrays do not count.
  int64_t arrays = int64_t{16} << 30;
};

using Budget = int64_t Budgets::*;

struct BudgetInfo {
  const char* name;  // of the member
  Budget of;
  const char* unit;  // unit of the count, for messages and the help
};

// All budgets, in the order of the struct.
const std::vector<BudgetInfo>& AllBudgets();

// "4G", "1000": a number that --budget reads back; k, M and G are powers of
// 1024.
std::string BudgetText(int64_t amount);

// The rest of the budgets.
class Spending {
 public:
  explicit Spending(const Budgets& budgets = {})
      : budgets_(budgets), left_(budgets) {}

  // Whether `amount` is left.
  bool Has(Budget budget, int64_t amount) const {
    return amount <= left_.*budget;
  }

  // `who` spends: a file, or a node or other object with Where(). Errors: less
  // is left; the message names `who`, the budget and the flag that raises it.
  template <typename Who>
  void Take(Budget budget, int64_t amount, const Who& who) {
    if (!Has(budget, amount)) [[unlikely]] {
      if constexpr (requires { who.Where(); }) {
        Refuse(budget, who.Where());
      } else {
        Refuse(budget, who);
      }
    }
    left_.*budget -= std::max<int64_t>(amount, 0);
  }

 private:
  [[noreturn]] void Refuse(Budget budget, const std::string& who) const;

  Budgets budgets_, left_;
};

}  // namespace onnx_fp8
