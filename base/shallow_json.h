// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"

namespace onnx_fp8 {

// JSON from a file that anybody may have written. nlohmann's dump is recursive,
// so a value that is printed must not nest deeply. The result is discarded
// (is_discarded()) if the text is no JSON. Errors: values deeper than `depth`;
// the message begins with `expected` ("[recipe.json] expected a recipe").
// `visit` may be null; it sees every event of the parser (depth, event, value),
// and its errors pass through.
template <typename Json = nlohmann::json>
Json ParseShallowJson(const char* text, size_t size, int depth,
                      const std::string& expected,
                      const typename Json::parser_callback_t& visit = nullptr) {
  auto shallow = [&](int at, typename Json::parse_event_t event, Json& value) {
    Check(at <= depth, expected, ", got deep nesting");
    return !visit || visit(at, event, value);
  };
  return Json::parse(text, text + size, shallow, false);
}

}  // namespace onnx_fp8
