// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/option_names.h"

#include <algorithm>

namespace onnx_fp8 {

std::string NamedBy(const HostNames& host, const std::string& message) {
  constexpr char kLower[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
  constexpr char kUpper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string text;
  size_t at = 0;
  for (size_t open; (open = message.find('`', at)) != std::string::npos;) {
    text += message.substr(at, open - at);
    at = open + 1;
    const size_t close = message.find('`', at);
    if (close == std::string::npos) {
      text += '`';
      break;
    }
    const std::string inside = message.substr(at, close - at);
    const size_t end =
        std::min(inside.find_first_not_of(inside < "a" ? kUpper : kLower),
                 inside.size());
    const std::string name = inside.substr(0, end), rest = inside.substr(end);
    const bool valued = rest.starts_with('=') && rest.size() > 1 &&
                        rest.find(' ') == std::string::npos;
    if (!name.empty() && (rest.empty() || valued)) {
      text += host.option(name, valued ? rest.substr(1) : "");
    } else if (!name.empty() && rest == "()") {
      text += host.command(name);
    } else {
      text += '`';
      continue;
    }
    at = close + 1;
  }
  return text + message.substr(at);
}

std::string Reference(const std::string& name, const std::string& value) {
  return "`" + name + (value.empty() ? "" : "=" + value) + "`";
}

std::string Alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace onnx_fp8
