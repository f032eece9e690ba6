// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page/heat_map.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace onnx_fp8 {
namespace {

constexpr int kExact = 4095;
constexpr double kLevels = 4000;

// Numbers beyond the ends become the ends.
int Level(double number) {
  return static_cast<int>(std::lround(std::clamp(number, 0.0, kLevels)));
}

int DecibelCode(float number) {
  if (std::isnan(number)) return 0;
  if (number == std::numeric_limits<float>::infinity()) return kExact;
  return 1 + Level(10 * (static_cast<double>(number) + 150));
}

int ShareCode(float number) {
  if (std::isnan(number)) return 0;
  if (!(number > 0)) return 1;
  return 2 + Level(400 * (std::log10(static_cast<double>(number)) + 10));
}

std::string Letters(const std::vector<float>& numbers, int code(float)) {
  constexpr char kLetters[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string text;
  text.reserve(2 * numbers.size());
  for (float number : numbers) {
    const int value = code(number);
    text += kLetters[value / 64];
    text += kLetters[value % 64];
  }
  return text;
}

}  // namespace

size_t StepColumns::Of(int64_t step) const {
  return static_cast<size_t>(std::ranges::upper_bound(first, step) -
                             first.begin()) -
         1;
}

StepColumns ColumnsOf(const std::vector<CastRow>& rows, size_t most) {
  std::vector<int64_t> steps;
  for (const CastRow& row : rows) {
    for (const CastSample& sample : row.samples) steps.push_back(sample.step);
  }
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  StepColumns columns;
  columns.measured = steps.size();
  const size_t count = std::min(most, steps.size());
  for (size_t i = 0; i < count; ++i) {
    columns.first.push_back(steps[i * steps.size() / count]);
    columns.last.push_back(steps[(i + 1) * steps.size() / count - 1]);
  }
  return columns;
}

std::vector<float> WorstOf(const CastRow& row, const StepColumns& columns,
                           float CastSample::*number, WorstIs worst) {
  std::vector<float> numbers(columns.size(),
                             std::numeric_limits<float>::quiet_NaN());
  for (const CastSample& sample : row.samples) {
    const float value = sample.*number;
    if (std::isnan(value)) continue;
    float& held = numbers[columns.Of(sample.step)];
    const bool worse = worst == WorstIs::kLeast ? value < held : value > held;
    if (std::isnan(held) || worse) held = value;
  }
  return numbers;
}

std::string DecibelCodes(const std::vector<float>& numbers) {
  return Letters(numbers, DecibelCode);
}

std::string ShareCodes(const std::vector<float>& numbers) {
  return Letters(numbers, ShareCode);
}

}  // namespace onnx_fp8
