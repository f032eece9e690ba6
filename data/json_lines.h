// SPDX-License-Identifier: Apache-2.0
//
// Files with one flat JSON object per line, such as metrics.jsonl. Somebody
// else may have written the file, and a process may have ended within a line.
// The reader leaves out lines that it can't read, and counts them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace onnx_fp8 {

// The keys and values of one line. Arrays and objects in it are left out.
class JsonFields {
 public:
  using Value = std::variant<std::nullptr_t, bool, double, std::string>;

  void Clear() { size_ = 0; }
  // A key of its own, or one that replaces nothing: the first of two counts.
  void Add(const std::string& key, Value value);

  // Null: there is no such key.
  const Value* Find(std::string_view key) const;
  // Nullopt: there is no such key, or its value is of another type.
  std::optional<double> Number(std::string_view key) const;
  // "" likewise.
  std::string_view Text(std::string_view key) const;
  bool On(std::string_view key) const;
  bool IsNull(std::string_view key) const;
  // The number "step" if it is whole, from 1 to 2^53 (JavaScript holds no
  // larger ones exactly); else 0.
  int64_t Step() const;

 private:
  struct Field {
    std::string key;
    Value value;
  };
  std::vector<Field> fields_;  // more than size_, to be used again
  size_t size_ = 0;
};

struct JsonLineCounts {
  int64_t read = 0;
  int64_t left_out = 0;  // no JSON object, without a step, or longer than 1 MiB
};

// Calls `visit` with each line of the file `name` in `folder` that has a step.
// Errors: the file can't be read, or is a link.
JsonLineCounts ReadJsonLines(
    const std::string& folder, const std::string& name,
    const std::function<void(const JsonFields&)>& visit);

// The fields of one line. False: it is no JSON object.
bool ParseFields(std::string_view line, JsonFields* fields);

}  // namespace onnx_fp8
