// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

constexpr const char* kNames[] = {"constant", "linear", "cosine"};

template <typename T>
T ParseNumber(std::string_view text, T low, T high, std::string_view all) {
  T value{};
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  Check(error == std::errc() && end == text.data() + text.size() &&
            value >= low && value <= high,
        "[schedule ", all, "] expected a number in ", low, "…", high,
        ", got \"", text, "\"");
  return value;
}

}  // namespace

Schedule ParseSchedule(std::string_view text) {
  Schedule schedule;
  size_t colon = text.find(':');
  auto kind = std::ranges::find(kNames, text.substr(0, colon));
  Check(
      kind != std::end(kNames), "[schedule ", text,
      "] expected constant, linear or cosine, then :warmup=STEPS,min=FRACTION "
      "where wanted");
  schedule.kind = static_cast<Schedule::Kind>(kind - kNames);
  if (colon == std::string_view::npos) return schedule;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    size_t equals = item.find('=');
    std::string_view key = item.substr(0, equals);
    std::string_view value =
        equals == std::string_view::npos ? "" : item.substr(equals + 1);
    if (key == "warmup") {
      schedule.warmup = ParseNumber<int64_t>(value, 0, int64_t{1} << 53, text);
    } else if (key == "min" && schedule.kind != Schedule::Kind::kConstant) {
      schedule.min = ParseNumber<double>(value, 0, 1, text);
    } else {
      Fail("[schedule ", text, "] expected warmup",
           schedule.kind == Schedule::Kind::kConstant ? "" : " or min",
           ", got \"", key, "\"");
    }
    if (comma == std::string_view::npos) return schedule;
    rest = rest.substr(comma + 1);
  }
}

std::string ToString(const Schedule& schedule) {
  std::string text = kNames[static_cast<int>(schedule.kind)];
  char separator = ':';
  if (schedule.warmup > 0) {
    text += Concat(separator, "warmup=", schedule.warmup);
    separator = ',';
  }
  if (schedule.min > 0) {
    char number[32];
    auto end = std::to_chars(number, number + sizeof number, schedule.min).ptr;
    text += Concat(separator, "min=", std::string_view(number, end));
  }
  return text;
}

double LearningRate(const Schedule& schedule, double lr, int64_t step,
                    int64_t total) {
  if (step <= schedule.warmup) {
    return lr * static_cast<double>(step) /
           static_cast<double>(schedule.warmup);
  }
  double after =
      static_cast<double>(std::max<int64_t>(total - schedule.warmup, 1));
  double p = std::clamp(static_cast<double>(step - 1 - schedule.warmup) / after,
                        0.0, 1.0);
  switch (schedule.kind) {
    case Schedule::Kind::kLinear:
      return lr * (1 - p * (1 - schedule.min));
    case Schedule::Kind::kCosine:
      return lr * (schedule.min + (1 - schedule.min) *
                                      (1 + std::cos(std::numbers::pi * p)) / 2);
    default:
      return lr;
  }
}

}  // namespace onnx_fp8
