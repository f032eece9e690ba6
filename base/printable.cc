// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace onnx_fp8 {
namespace {

constexpr size_t kMostPrinted = 4000;

// A character at the beginning of a text. `bytes` is 0 if there is none; then
// `unfinished` says whether more text could make one.
struct Character {
  uint32_t code = 0;
  size_t bytes = 0;
  bool unfinished = false;
};

Character FirstOf(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead < 0xC2   ? 0
                       : lead < 0xE0 ? 2
                       : lead < 0xF0 ? 3
                       : lead < 0xF5 ? 4
                                     : 0;
  if (bytes == 0) return {};
  uint32_t code = lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if (i == text.size()) return {0, 0, true};
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {};
    code = code << 6 | (next & 0x3F);
  }
  // The longest form of a shorter one, halves of UTF-16, beyond Unicode.
  if ((bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000) ||
      (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) {
    return {};
  }
  return {code, bytes};
}

// Controls of Latin 1, marks and embeddings of the direction of text, its lines
// and paragraphs.
bool IsControl(uint32_t code) {
  return (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E ||
         code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF;
}

void AppendEscaped(const char* format, uint32_t code, std::string* out) {
  char escaped[16];
  std::snprintf(escaped, sizeof escaped, format, code);
  *out += escaped;
}

// Appends the first character and returns its bytes.
size_t AppendFirst(std::string_view text, bool keeps_newline,
                   std::string* out) {
  const Character first = FirstOf(text);
  const auto lead = static_cast<unsigned char>(text[0]);
  if (first.bytes == 0 ||
      (first.code < 0x20 && !(keeps_newline && first.code == '\n'))) {
    AppendEscaped("\\x%02x", lead, out);
    return 1;
  }
  if (IsControl(first.code)) {
    AppendEscaped("\\u%04x", first.code, out);
  } else {
    out->append(text, 0, first.bytes);
  }
  return first.bytes;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = FirstOf(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (out.size() > kMostPrinted) return out + "…";
    text.remove_prefix(AppendFirst(text, false, &out));
  }
  return out;
}

std::string PrintableLines(std::string_view text, std::string_view* rest) {
  std::string out;
  while (!text.empty() && !FirstOf(text).unfinished) {
    text.remove_prefix(AppendFirst(text, true, &out));
  }
  *rest = text;
  return out;
}

}  // namespace onnx_fp8
