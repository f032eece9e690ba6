// SPDX-License-Identifier: Apache-2.0
//
// Text that may quote any bytes of a file, made safe for a terminal and a log.
// Control characters (ASCII's and Latin 1's), characters that change the
// direction of text or end a line, and bytes that are not UTF-8 appear as
// "\x1b" or "\u202e".
#pragma once

#include <string>
#include <string_view>

namespace onnx_fp8 {

// Whether the text is UTF-8.
bool IsUtf8(std::string_view text);

// One line: a newline appears as "\x0a", and a very long text ends in "…".
std::string Printable(std::string_view text);

// The same for a part of a whole output, whose newlines stay. It leaves JSON
// what it is: nlohmann has escaped ASCII's control characters and what is not
// UTF-8. `*rest` is the beginning of a character at the end of `text`; it is
// left for the next part.
std::string PrintableLines(std::string_view text, std::string_view* rest);

}  // namespace onnx_fp8
