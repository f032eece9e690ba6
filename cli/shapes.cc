// SPDX-License-Identifier: Apache-2.0
#include "cli/shapes.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/check.h"
#include "cli/feeds.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {

std::map<std::string, int64_t> ParseShapeFlag(
    const std::vector<std::string>& words) {
  std::map<std::string, int64_t> axes;
  for (const std::string& word : words) {
    size_t split = word.rfind('=');
    int64_t size = 0;
    bool ok = split != std::string::npos && split > 0;
    if (ok) {
      const char* end = word.data() + word.size();
      auto [stop, error] = std::from_chars(word.data() + split + 1, end, size);
      ok = error == std::errc() && stop == end && size > 0;
    }
    if (!ok) {
      throw OptionError("`shape`: expected AXIS=N with N >= 1, got \"" + word +
                        "\"");
    }
    axes[word.substr(0, split)] = size;
  }
  return axes;
}

std::string AxisName(const InputInfo& input, size_t i) {
  bool named = i < input.axis_names.size() && !input.axis_names[i].empty();
  return named ? input.axis_names[i] : Concat(input.name, ".", i);
}

std::map<std::string, Shape> ResolveShapes(
    const std::vector<InputInfo>& inputs,
    const std::map<std::string, int64_t>& axes) {
  std::map<std::string, Shape> shapes;
  std::set<std::string> known;
  for (const InputInfo& input : inputs) {
    Shape shape = input.shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] >= 0) continue;
      std::string axis = AxisName(input, i);
      known.insert(axis);
      auto it = axes.find(axis);
      if (it != axes.end()) shape[i] = it->second;
    }
    shapes[input.name] = shape;
  }
  for (const auto& [axis, size] : axes) {
    if (known.contains(axis)) continue;
    std::string names;
    for (const std::string& name : known) names += " " + name;
    throw OptionError("`shape`: no input has an axis \"" + axis +
                      "\"; there are:" + (names.empty() ? " none" : names));
  }
  return shapes;
}

InputValues ParseValueFlag(const std::vector<std::string>& words) {
  InputValues values;
  for (const std::string& word : words) {
    size_t split = word.rfind('=');
    bool ok = split != std::string::npos && split > 0;
    std::string text = ok ? word.substr(split + 1) : "";
    if (text == "true") text = "1";
    if (text == "false") text = "0";
    int64_t value = 0;
    const char* end = text.data() + text.size();
    auto [stop, error] = std::from_chars(text.data(), end, value);
    if (!ok || error != std::errc() || stop != end) {
      throw OptionError(
          "`value`: expected INPUT=N with an integer, true or false, got \"" +
          word + "\"");
    }
    values[word.substr(0, split)] = value;
  }
  return values;
}

InputValues ResolveValues(const std::vector<InputInfo>& inputs,
                          const InputValues& values) {
  for (const auto& [name, value] : values) {
    auto input = std::ranges::find(inputs, name, &InputInfo::name);
    if (input == inputs.end()) {
      throw OptionError("`value`: the model has no input \"" + name + "\"");
    }
    Shape shape = input->shape;
    for (int64_t& size : shape) size = size < 0 ? 1 : size;
    if (!MayBeKey(input->dtype, shape)) {
      throw OptionError(
          Concat("`value`: expected an input of one integer or "
                 "bool, got \"",
                 name, "\" of ", Name(input->dtype), ToString(input->shape)));
    }
    FeedAs(Tensor::Scalar(value), input->dtype, "`value` " + name);
  }
  return values;
}

}  // namespace onnx_fp8
