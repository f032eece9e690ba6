// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "onnx_fp8/check.h"

namespace onnx_fp8 {

// JSON from a file that anybody may have written. nlohmann's dump is recursive,
// so what is printed must not nest deeply. Discarded (is_discarded()) where the
// text is no JSON. Errors: values deeper than `depth`, with `expected` before
// it ("[recipe.json] expected a recipe"), and what `visit` throws, which sees
// every event of the parser (depth, event, value) and may be null.
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
