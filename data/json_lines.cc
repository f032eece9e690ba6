// SPDX-License-Identifier: Apache-2.0
#include "data/json_lines.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/input_file.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kLongestLine = size_t{1} << 20;
constexpr size_t kMostFields = 64;  // our own lines have 13 at most
constexpr double kLargestStep = 9007199254740992;  // 2^53

// Keeps the values of the outermost object. nlohmann's parser keeps its depth
// in a vector, so deep nesting does no harm.
class FieldReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit FieldReader(JsonFields* fields) : fields_(fields) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override {
    return Add(static_cast<double>(value));
  }
  bool number_unsigned(uint64_t value) override {
    return Add(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) override {
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return depth_ > 0 && Open(); }
  bool end_array() override { return Close(); }
  bool key(std::string& key) override {
    if (depth_ == 1) key_ = std::move(key);
    return true;
  }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool Add(JsonFields::Value value) {
    if (depth_ == 1) fields_->Add(key_, std::move(value));
    return depth_ > 0;
  }
  bool Open() {
    ++depth_;
    return true;
  }
  bool Close() {
    --depth_;
    return true;
  }

  JsonFields* fields_;
  std::string key_;
  int64_t depth_ = 0;
};

}  // namespace

void JsonFields::Add(const std::string& key, Value value) {
  if (size_ == kMostFields) return;
  if (size_ == fields_.size()) fields_.emplace_back();
  fields_[size_].key = key;
  fields_[size_].value = std::move(value);
  ++size_;
}

const JsonFields::Value* JsonFields::Find(std::string_view key) const {
  for (size_t i = 0; i < size_; ++i) {
    if (fields_[i].key == key) return &fields_[i].value;
  }
  return nullptr;
}

std::optional<double> JsonFields::Number(std::string_view key) const {
  const Value* value = Find(key);
  const double* number = value ? std::get_if<double>(value) : nullptr;
  if (!number) return std::nullopt;
  return *number;
}

std::string_view JsonFields::Text(std::string_view key) const {
  const Value* value = Find(key);
  const std::string* text = value ? std::get_if<std::string>(value) : nullptr;
  return text ? std::string_view(*text) : std::string_view();
}

bool JsonFields::On(std::string_view key) const {
  const Value* value = Find(key);
  const bool* on = value ? std::get_if<bool>(value) : nullptr;
  return on && *on;
}

bool JsonFields::IsNull(std::string_view key) const {
  const Value* value = Find(key);
  return value && std::holds_alternative<std::nullptr_t>(*value);
}

int64_t JsonFields::Step() const {
  const double step = Number("step").value_or(0);
  const bool fits = step >= 1 && step <= kLargestStep;
  return fits && step == std::floor(step) ? static_cast<int64_t>(step) : 0;
}

bool ParseFields(std::string_view line, JsonFields* fields) {
  fields->Clear();
  FieldReader reader(fields);
  return nlohmann::json::sax_parse(line.begin(), line.end(), &reader);
}

JsonLineCounts ReadJsonLines(
    const std::string& folder, const std::string& name,
    const std::function<void(const JsonFields&)>& visit) {
  const InputFile file(folder, name);
  JsonLineCounts counts;
  JsonFields fields;
  auto take = [&](std::string_view line) {
    if (line.empty()) return;
    const bool ours = line.size() <= kLongestLine &&
                      ParseFields(line, &fields) && fields.Step() > 0;
    if (ours) visit(fields);
    ++(ours ? counts.read : counts.left_out);
  };
  std::string piece, rest;
  for (uint64_t done = 0; done < file.size(); done += piece.size()) {
    piece.resize(std::min<uint64_t>(file.size() - done, kLongestLine));
    file.Read(piece.data(), piece.size(), done);
    size_t begin = 0;
    for (size_t end; (end = piece.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      rest.append(piece, begin, end - begin);
      take(rest);
      rest.clear();
    }
    // A line that is too long is refused by its size: its rest is not kept.
    if (rest.size() <= kLongestLine) rest.append(piece, begin);
  }
  take(rest);
  return counts;
}

}  // namespace onnx_fp8
