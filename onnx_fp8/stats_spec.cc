// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/stats_spec.h"

#include <string_view>

#include "base/check.h"
#include "base/number_text.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {

StatsSpec ParseStats(const std::string& text) {
  StatsSpec spec;
  if (text.empty()) return spec;
  const auto refuse = [&](std::string_view item) {
    return OptionError(Concat(
        "`stats`: expected every=N,layers=GLOB,GLOB, got \"", item, "\""));
  };
  // An item without a key is another glob: globs hold no commas.
  bool in_layers = false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view item = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::string_view whole = item;
    if (item.starts_with("every=")) {
      item.remove_prefix(6);
      if (!ReadNumber(item, &spec.every) || spec.every < 1) throw refuse(whole);
      in_layers = false;
      continue;
    }
    if (item.starts_with("layers=")) {
      item.remove_prefix(7);
      in_layers = true;
    }
    if (!in_layers || item.empty()) throw refuse(whole);
    spec.layers.emplace_back(item);
  }
  if (spec.every == 0) throw refuse(text);
  return spec;
}

}  // namespace onnx_fp8
