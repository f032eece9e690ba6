// SPDX-License-Identifier: Apache-2.0
#include "python/keywords.h"

#include <cctype>

#include "onnx_fp8/option_names.h"

namespace onnx_fp8 {
namespace {

std::string Keyword(const std::string& name, const std::string& value) {
  if (value.empty()) {
    std::string keyword = name;
    for (char& c : keyword) c = static_cast<char>(std::tolower(c));
    return Reference(keyword);
  }
  return Reference(name, "\"" + value + "\"");
}

std::string Function(const std::string& name) {
  // Python has no function for these commands.
  if (name == "bench" || name == "explain") return "`onnx-fp8 " + name + "`";
  return "`onnx_fp8." + (name == "eval" ? "evaluate" : name) + "`";
}

}  // namespace

std::string InKeywords(const std::string& message) {
  return NamedBy({Keyword, Function}, message);
}

}  // namespace onnx_fp8
