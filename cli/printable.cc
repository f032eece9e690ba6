// SPDX-License-Identifier: Apache-2.0
#include "cli/printable.h"

#include <cstdio>

namespace onnx_fp8 {

std::string Printable(const std::string& message) {
  constexpr size_t kMost = 4000;
  std::string text;
  auto byte = [&](size_t i) -> unsigned {
    return i < message.size() ? static_cast<unsigned char>(message[i]) : 0;
  };
  for (size_t i = 0; i < message.size();) {
    if (text.size() > kMost) return text + "…";
    unsigned lead = byte(i);
    size_t size = lead < 0x80   ? 1
                  : lead < 0xC2 ? 0
                  : lead < 0xE0 ? 2
                  : lead < 0xF0 ? 3
                  : lead < 0xF5 ? 4
                                : 0;
    bool fine = size > 0;
    for (size_t k = 1; k < size; ++k) fine &= (byte(i + k) & 0xC0) == 0x80;
    if (size == 1) fine = (lead >= 0x20 && lead != 0x7F) || lead == '\n';
    if (lead == 0xC2)
      fine &= byte(i + 1) >= 0xA0;  // Latin 1's control
                                    // characters
    if (fine) {
      text.append(message, i, size);
      i += size;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", lead);
      text += escaped;
      ++i;
    }
  }
  return text;
}

}  // namespace onnx_fp8
