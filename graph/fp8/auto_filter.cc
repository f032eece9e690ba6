// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/auto_filter.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

std::string Times(double speedup) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2fx", speedup);
  return text;
}

Prediction ByThresholds(bool rows, int64_t k, int64_t n) {
  const char* slow = nullptr;
  if (!rows) {
    if (k <= 4096 && n <= 1024) slow = "K <= 4096, N <= 1024";
  } else if (n <= 2048) {
    slow = "N <= 2048";
  } else if (k <= 1024) {
    slow = "K <= 1024";
  } else if (n <= 4096 && k <= 2048) {
    slow = "N <= 4096, K <= 2048";
  }
  return {slow == nullptr, {}, slow ? Concat("h100: ", slow) : ""};
}

Prediction OnH100(const SpeedTable& table, const Recipe& recipe, int64_t m,
                  int64_t k, int64_t n) {
  for (auto [name, size] : {std::pair{"K", k}, std::pair{"N", n}}) {
    if (size % 16 == 0) continue;
    return {false, {}, Concat("h100: ", name, " is no multiple of 16")};
  }
  bool rows = recipe[Use::kInput].granularity == Granularity::kRow;
  if (!rows || m < 0) return ByThresholds(rows, k, n);
  double speedup = table.speedup.At(m, k, n);
  if (recipe[Use::kInputForWgrad].high_precision)
    speedup = std::min(speedup, 1.5);
  return {speedup >= 1, speedup, "h100: " + Times(speedup)};
}

// Number of quantizations of an operand for its two uses.
int Copies(const OperandRecipe& first, const OperandRecipe& second) {
  int copies = !first.high_precision + !second.high_precision;
  bool shared = first == second &&
                (first.granularity == Granularity::kTensor || first.square);
  return shared ? std::min(copies, 1) : copies;
}

Prediction MeasuredLayer(const SpeedTable& table, int64_t m, int64_t k,
                         int64_t n) {
  double speedup = table.speedup.At(m, k, n);
  return {speedup >= 1, speedup, "measured: " + Times(speedup)};
}

Prediction MeasuredProducts(const SpeedTable& table, const Recipe& r, int64_t m,
                            int64_t k, int64_t n) {
  double operations = 2.0 * static_cast<double>(m) * static_cast<double>(k) *
                      static_cast<double>(n);
  double before = 0, after = 0;
  auto add = [&](const OperandRecipe& operand, int64_t p, int64_t depth,
                 int64_t q) {
    double fp32 = operations / table.fp32.At(p, depth, q);
    before += fp32;
    after +=
        operand.high_precision ? fp32 : operations / table.fp8.At(p, depth, q);
  };
  add(r[Use::kInput], m, k, n);
  add(r[Use::kGradOutput], m, n, k);
  add(r[Use::kGradOutputForWgrad], k, m, n);
  auto elements = [](int64_t rows, int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  };
  double quantized =
      Copies(r[Use::kInput], r[Use::kInputForWgrad]) * elements(m, k) +
      Copies(r[Use::kWeight], r[Use::kWeightForDgrad]) * elements(k, n) +
      Copies(r[Use::kGradOutput], r[Use::kGradOutputForWgrad]) * elements(m, n);
  double speedup = before / (after + quantized / table.quantize);
  return {speedup >= 1, speedup, "measured: " + Times(speedup)};
}

}  // namespace

Prediction PredictLayer(const SpeedTable& table, const Recipe& recipe,
                        int64_t m, int64_t k, int64_t n) {
  // An empty product takes no time.
  if (m == 0 || k < 1 || n < 1) return {true, {}, ""};
  if (!table.measured()) return OnH100(table, recipe, m, k, n);
  // An unknown M counts as large: the speeds stay the same from there on.
  const SpeedGrid& grid = table.of_layers() ? table.speedup : table.fp32;
  if (m < 0) m = grid.m.back();
  return table.of_layers() ? MeasuredLayer(table, m, k, n)
                           : MeasuredProducts(table, recipe, m, k, n);
}

void CheckKnown(const SpeedTable& table, const Recipe& recipe) {
  const OperandRecipe& input = recipe[Use::kInput];
  bool block =
      !input.high_precision && input.granularity == Granularity::kBlock;
  Check(table.measured() || !block,
        "`auto_filter` h100: expected a recipe of tensors or rows, got ",
        RecipeText(recipe), "; `bench()` measures others");
}

}  // namespace onnx_fp8
