// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

namespace onnx_fp8 {

// The shortest text that reads back as the same number.
template <typename T>
std::string NumberText(T number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

// Whether the whole text is a number of that type, which `number` becomes.
template <typename T>
bool ReadNumber(std::string_view text, T* number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stop == end;
}

}  // namespace onnx_fp8
