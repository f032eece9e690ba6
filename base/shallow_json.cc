// SPDX-License-Identifier: Apache-2.0
#include "base/shallow_json.h"

#include <type_traits>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// An ordered object finds a key by trying all that came before.
constexpr size_t kMostOrderedKeys = 10'000;

// Reads a text without keeping it. (nlohmann's parser can call a function for
// each event as well, but then looks at all elements of an object again after
// each one.)
template <typename Json>
class ShallowJsonChecker : public nlohmann::json_sax<Json> {
 public:
  ShallowJsonChecker(int depth, const std::string& expected,
                     const JsonKeyVisitor& visit)
      : depth_(depth), expected_(expected), visit_(visit) {}

  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(typename Json::number_integer_t) override {
    return Value();
  }
  bool number_unsigned(typename Json::number_unsigned_t) override {
    return Value();
  }
  bool number_float(typename Json::number_float_t,
                    const typename Json::string_t&) override {
    return Value();
  }
  bool string(typename Json::string_t&) override { return Value(); }
  bool binary(typename Json::binary_t&) override { return Value(); }
  bool start_object(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool key(typename Json::string_t& key) override {
    ++keys_;
    Check(!std::is_same_v<Json, nlohmann::ordered_json> ||
              keys_ <= kMostOrderedKeys,
          expected_, ", got more than ", kMostOrderedKeys, " keys");
    if (visit_) visit_(open_, key);
    return Value();
  }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool Value() {
    Check(open_ <= depth_, expected_, ", got deep nesting");
    return true;
  }
  bool Open() {
    Value();
    ++open_;
    return true;
  }
  bool Close() {
    --open_;
    return true;
  }

  int depth_, open_ = 0;
  size_t keys_ = 0;
  const std::string& expected_;
  const JsonKeyVisitor& visit_;
};

}  // namespace

template <typename Json>
Json ParseShallowJson(const char* text, size_t size, int depth,
                      const std::string& expected,
                      const JsonKeyVisitor& visit) {
  ShallowJsonChecker<Json> checker(depth, expected, visit);
  if (!Json::sax_parse(text, text + size, &checker)) {
    return Json(Json::value_t::discarded);
  }
  return Json::parse(text, text + size, nullptr, false);
}

// nlohmann's parser is large: it is compiled here only.
template nlohmann::json ParseShallowJson(const char*, size_t, int,
                                         const std::string&,
                                         const JsonKeyVisitor&);
template nlohmann::ordered_json ParseShallowJson(const char*, size_t, int,
                                                 const std::string&,
                                                 const JsonKeyVisitor&);

}  // namespace onnx_fp8
