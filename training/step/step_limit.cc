// SPDX-License-Identifier: Apache-2.0
#include "training/step/step_limit.h"

#include <charconv>
#include <cmath>

#include "base/check.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

struct SizeUnit {
  const char* name;
  double bytes;
};

// Longer names come before the names that they end with.
constexpr SizeUnit kSizeUnits[] = {
    {"KiB", 1024.0},       {"MiB", 1048576.0},
    {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    {"kB", 1e3},           {"KB", 1e3},
    {"MB", 1e6},           {"GB", 1e9},
    {"TB", 1e12},          {"B", 1.0}};

}  // namespace

size_t ParseMemory(const std::string& text) {
  std::string number = text;
  double factor = 1;
  for (const SizeUnit& unit : kSizeUnits) {
    if (!text.ends_with(unit.name)) continue;
    number.resize(text.size() - std::string(unit.name).size());
    factor = unit.bytes;
    break;
  }
  double value = 0;
  const char* end = number.data() + number.size();
  const auto [stop, error] =
      std::from_chars(number.data(), end, value, std::chars_format::fixed);
  const double bytes = std::floor(value * factor);
  const bool fits = error == std::errc() && stop == end && bytes >= 1 &&
                    bytes < 9007199254740992.0;  // exact in a double
  if (!fits) {
    throw OptionError(
        "`memory`: expected auto or a size, as in 74GiB, 80GB, 512MiB or a "
        "number of bytes, got \"" +
        text + "\"");
  }
  return static_cast<size_t>(bytes);
}

bool RecomputesAutomatically(const SessionOptions& options) {
  if (options.recompute.empty()) return !options.memory.empty();
  return options.recompute == std::vector<std::string>{"auto"};
}

std::optional<StepLimit> StepLimitOf(const SessionOptions& options,
                                     Device device,
                                     const std::function<size_t()>& available) {
  if (options.memory.empty() && !RecomputesAutomatically(options)) {
    return std::nullopt;
  }
  StepLimit limit = {0, device == Device::kHost ? 0 : kDeviceReserve};
  if (!options.memory.empty() && options.memory != "auto") {
    limit.bytes = ParseMemory(options.memory);
    return limit;
  }
  limit.bytes = available();
  if (limit.bytes == 0) {
    throw OptionError(
        "`memory=auto`: expected a machine that tells how much memory it has, "
        "or a size, as in `memory=74GiB`");
  }
  return limit;
}

}  // namespace onnx_fp8
