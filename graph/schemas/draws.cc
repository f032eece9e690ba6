// SPDX-License-Identifier: Apache-2.0
#include "graph/schemas/draws.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"

namespace onnx_fp8 {
namespace {

// y = mix(x). Both are 32 bits in an int64, and a factor of 2^31 or more is
// written less 2^32: no product overflows.
std::string Mix(const std::string& x, const std::string& y) {
  const std::string t = y + "_";
  return Concat(t, "1 = Div (", x, ", two16)\n", t, "2 = BitwiseXor (", x, ", ",
                t, "1)\n", t, "3 = Mul (", t, "2, factor1)\n", t,
                "4 = BitwiseAnd (", t, "3, low)\n", t, "5 = Div (", t,
                "4, two15)\n", t, "6 = BitwiseXor (", t, "4, ", t, "5)\n", t,
                "7 = Mul (", t, "6, factor2)\n", t, "8 = BitwiseAnd (", t,
                "7, low)\n", t, "9 = Div (", t, "8, two16)\n", y,
                " = BitwiseXor (", t, "8, ", t, "9)\n");
}

constexpr char kDrawConstants[] = R"(
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  all = Constant <value_ints: ints = [-1]> ()
  two15 = Constant <value_int: int = 32768> ()
  two16 = Constant <value_int: int = 65536> ()
  two32 = Constant <value_int: int = 4294967296> ()
  low = Constant <value_int: int = 4294967295> ()
  factor1 = Constant <value_int: int = 2146121005> ()
  factor2 = Constant <value_int: int = -2073254261> ()
  stream = Constant <value_int: int = @stream> ()
  shift = Constant <value_int: int = @shift> ()
  run = Constant <value_int: int = @row> ()
  stride = Constant <value_int: int = @stride> ()
  begin = Constant <value_int: int = @begin> ()
  seed_low = BitwiseAnd (seed, low)
  seed_high = Div (seed, two32)
  update_low = BitwiseAnd (update, low)
  in1 = BitwiseXor (seed_low, stream)
)";

// The place of each element in the whole tensor.
constexpr char kPlaces[] = R"(
  size = Size (x)
  own = Range (zero, size, one)
  i = Add (own, shift)
  runs = Div (i, run)
  inside = Mod (i, run)
  ahead = Mul (runs, stride)
  from = Add (ahead, begin)
  place = Add (from, inside)
  place_high = Div (place, two32)
  place_low = BitwiseAnd (place, low)
)";

constexpr char kShare[] = R"(
  part16 = Div (draw, two16)
  draw_d = Cast <to: int = 11> (part16)
  scale16 = Constant <value = double {1.52587890625e-05}> ()
  share = Mul (draw_d, scale16)
)";

}  // namespace

std::string DrawText() {
  return Concat(kDrawConstants, Mix("in1", "key1"),
                "in2 = BitwiseXor (seed_high, key1)\n", Mix("in2", "key2"),
                "in3 = BitwiseXor (update_low, key2)\n", Mix("in3", "key3"),
                kPlaces, "in4 = BitwiseXor (place_high, key3)\n",
                Mix("in4", "key4"), "in5 = BitwiseXor (place_low, key4)\n",
                Mix("in5", "draw"), kShare);
}

std::string PowerOfTwoText(int least, int bits) {
  auto constant = [](const std::string& name, int exponent) {
    char text[32];
    char* end =
        std::to_chars(text, text + sizeof text, std::ldexp(1, exponent)).ptr;
    return Concat(name, " = Constant <value = double {",
                  std::string_view(text, end), "}> ()\n");
  };
  std::string body = constant("power_0", least);
  for (int i = 0; i < bits; ++i) {
    const std::string from = Concat("power_", i);
    const std::string to =
        i + 1 < bits ? Concat("power_", i + 1) : std::string("power");
    body += Concat(constant(from + "_by", 1 << (bits - 1 - i)), from,
                   "_up = Mul (", from, ", ", from, "_by)\n", from,
                   "_fits = GreaterOrEqual (magnitude, ", from, "_up)\n", to,
                   " = Where (", from, "_fits, ", from, "_up, ", from, ")\n");
  }
  return body;
}

std::vector<AttributeDefinition> DrawAttributes() {
  constexpr AttributeKind kInt = AttributeKind::kInt;
  return {{"stream", kInt},
          {"shift", kInt},
          {"row", kInt},
          {"stride", kInt},
          {"begin", kInt}};
}

Attributes DrawsOf(const std::string& state, const ElementPlaces& at) {
  return {{"stream", static_cast<int64_t>(Hash(state) & 0xFFFFFFFF)},
          {"shift", at.shift},
          {"row", at.run},
          {"stride", at.stride},
          {"begin", at.begin}};
}

void CheckDraws(const Node& node, size_t seed) {
  for (size_t i : {seed, seed + 1}) {
    const Value& x = *node.in(i);
    Check(x.dtype == DType::kInt64 && (!x.shape || x.shape->empty()), "[",
          node.Where(), "] expected an int64 of rank 0, got ", x.name);
  }
  const ElementPlaces places = {.shift = node.Int("shift", -1),
                                .run = node.Int("row", 0),
                                .stride = node.Int("stride", -1),
                                .begin = node.Int("begin", -1)};
  Check(places.IsValid(), "[", node.Where(),
        "] expected a row from 1 on, and a shift, a stride "
        "and a begin from 0 on");
}

}  // namespace onnx_fp8
