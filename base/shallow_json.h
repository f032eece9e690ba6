// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace onnx_fp8 {

// Called with each key of an object and its depth: 1 in the outermost object.
using JsonKeyVisitor = std::function<void(int depth, const std::string& key)>;

// JSON from a file that anybody may have written. nlohmann's dump is recursive,
// so a value that is printed must not nest deeply. The result is discarded
// (is_discarded()) if the text is no JSON. Errors: values deeper than `depth`,
// too many keys for an ordered object; the message begins with `expected`
// ("[recipe.json] expected a recipe"). `visit` may be empty; its errors pass
// through. `Json` must be nlohmann::json or nlohmann::ordered_json.
template <typename Json = nlohmann::json>
Json ParseShallowJson(const char* text, size_t size, int depth,
                      const std::string& expected,
                      const JsonKeyVisitor& visit = {});

}  // namespace onnx_fp8
