// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace onnx_fp8 {

// The one exception type. what() reads "[node or file] expected …, got …" and
// is meant for the person at the terminal.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <typename... Parts>
[[noreturn]] void Fail(const Parts&... parts) {
  throw Error(Concat(parts...));
}

// For every error that input can cause; `assert` is for our own bugs.
template <typename... Parts>
void Check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    Fail(parts...);
}

}  // namespace onnx_fp8
