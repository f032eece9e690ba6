// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/number_text.h"

namespace onnx_fp8 {
namespace {

constexpr const char* kNames[] = {"constant", "linear", "cosine", "wsd"};

const char* KeysOf(Schedule::Kind kind) {
  return kind == Schedule::Kind::kConstant ? "warmup"
         : kind == Schedule::Kind::kWsd    ? "warmup, decay or min"
                                           : "warmup or min";
}

template <typename T>
T ParseNumber(std::string_view text, T low, T high, std::string_view all) {
  T value{};
  Check(ReadNumber(text, &value) && value >= low && value <= high, "[schedule ",
        all, "] expected a number in ", low, "…", high, ", got \"", text, "\"");
  return value;
}

// The part of `text` behind the colon.
void ParseKeys(std::string_view text, std::string_view rest,
               Schedule* schedule) {
  while (true) {
    size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    size_t equals = item.find('=');
    std::string_view key = item.substr(0, equals);
    std::string_view value =
        equals == std::string_view::npos ? "" : item.substr(equals + 1);
    if (key == "warmup") {
      schedule->warmup = ParseNumber<int64_t>(value, 0, int64_t{1} << 53, text);
    } else if (key == "decay" && schedule->kind == Schedule::Kind::kWsd) {
      schedule->decay = ParseNumber<int64_t>(value, 1, int64_t{1} << 53, text);
    } else if (key == "min" && schedule->kind != Schedule::Kind::kConstant) {
      schedule->min = ParseNumber<double>(value, 0, 1, text);
    } else {
      Fail("[schedule ", text, "] expected ", KeysOf(schedule->kind),
           ", got \"", key, "\"");
    }
    if (comma == std::string_view::npos) return;
    rest = rest.substr(comma + 1);
  }
}

// How far step `step` is between the step behind `begin` and `end`, 0 … 1.
double Progress(int64_t step, int64_t begin, int64_t end) {
  const auto length = static_cast<double>(std::max<int64_t>(end - begin, 1));
  return std::clamp(static_cast<double>(step - 1 - begin) / length, 0.0, 1.0);
}

}  // namespace

Schedule ParseSchedule(std::string_view text) {
  Schedule schedule;
  size_t colon = text.find(':');
  auto kind = std::ranges::find(kNames, text.substr(0, colon));
  Check(kind != std::end(kNames), "[schedule ", text,
        "] expected constant, linear, cosine or wsd, then :warmup=STEPS,"
        "min=FRACTION where wanted; wsd with decay=STEPS");
  schedule.kind = static_cast<Schedule::Kind>(kind - kNames);
  if (colon != std::string_view::npos) {
    ParseKeys(text, text.substr(colon + 1), &schedule);
  }
  Check(schedule.kind != Schedule::Kind::kWsd || schedule.decay > 0,
        "[schedule ", text, "] expected decay=STEPS, as in wsd:decay=200, ",
        "got none");
  return schedule;
}

std::string ToString(const Schedule& schedule) {
  std::string text = kNames[static_cast<int>(schedule.kind)];
  char separator = ':';
  if (schedule.warmup > 0) {
    text += Concat(separator, "warmup=", schedule.warmup);
    separator = ',';
  }
  if (schedule.decay > 0) {
    text += Concat(separator, "decay=", schedule.decay);
    separator = ',';
  }
  if (schedule.min > 0) {
    text += Concat(separator, "min=", NumberText(schedule.min));
  }
  return text;
}

double LearningRate(const Schedule& schedule, double lr, int64_t step,
                    int64_t total) {
  if (step <= schedule.warmup) {
    return lr * static_cast<double>(step) /
           static_cast<double>(schedule.warmup);
  }
  const double p = Progress(step, schedule.warmup, total);
  switch (schedule.kind) {
    case Schedule::Kind::kLinear:
      return lr * (1 - p * (1 - schedule.min));
    case Schedule::Kind::kCosine:
      return lr * (schedule.min + (1 - schedule.min) *
                                      (1 + std::cos(std::numbers::pi * p)) / 2);
    case Schedule::Kind::kWsd: {
      const int64_t stable = std::max(total - schedule.decay, schedule.warmup);
      return lr * (1 - Progress(step, stable, total) * (1 - schedule.min));
    }
    default:
      return lr;
  }
}

}  // namespace onnx_fp8
