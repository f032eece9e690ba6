// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_rotary.h"

#include <gtest/gtest.h>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

const char kSplit[] =
    "x1: float[2,3,4,2], x2: float[2,3,4,2] = Split<axis=3, num_outputs=2>(x)";
const char kSlices[] = R"(x1: float[2,3,4,2] = Slice(x, zero, two, last, one)
x2: float[2,3,4,2] = Slice(x, two, end, last, one))";

// A constant of any numbers.
std::string Table(const std::string& name, const std::string& type, int n,
                  const std::string& role = "const") {
  std::string numbers;
  for (int i = 0; i < n; ++i) {
    numbers += (i ? "," : "") + std::to_string((i * 7 + 3) % 11 - 5);
  }
  return role + " " + name + ": float" + type + " = {" + numbers + "}\n";
}

// For x (2,3,4,4): its halves, the turned part, and how cos and sin enter.
std::string Rotary(const std::string& table, const std::string& halves,
                   const std::string& turned = "Concat<axis=-1>(m, x1)",
                   const std::string& sum = "Add(a, b)",
                   const std::string& role = "const") {
  int n = 1;
  for (char c : table) n *= c >= '1' && c <= '9' ? c - '0' : 1;
  return R"(graph "g" opset 20
input x: float[2,3,4,4]
)" + Table("c", table, n, role) +
         Table("s", table, n) + R"(
const zero: int64[1] = {0}
const one: int64[1] = {1}
const two: int64[1] = {2}
const last: int64[1] = {3}
const end: int64[1] = {9223372036854775807}
)" + halves +
         R"(
m: float[2,3,4,2] = Neg(x2)
t: float[2,3,4,4] = )" +
         turned + R"(
a: float[2,3,4,4] = Mul(x, c)
b: float[2,3,4,4] = Mul(t, s)
y: float[2,3,4,4] = )" +
         sum + "\noutput y\n";
}

TEST(FuseRotary, HeadsInFront) {
  EXPECT_EQ(AfterPass(FuseRotary, Rotary("[4,4]", kSplit)),
            R"(graph "g" opset 20
input x: float[2,3,4,4]
const c: float[4,4]
const s: float[4,4]
const "const.int64[3] 2 4 12": int64[3] = {2,4,12}
const "const.int64[3] 1 4 4": int64[3] = {1,4,4}
const "const.int64[4] 2 4 3 4": int64[4] = {2,4,3,4}
y.Transpose: float[2,4,3,4] = Transpose<perm=[0,2,1,3]>(x)
y.Reshape: float[2,4,12] = Reshape<allowzero=1>(y.Transpose, "const.int64[3] 2 4 12")
y.Reshape_1: float[1,4,4] = Reshape<allowzero=1>(c, "const.int64[3] 1 4 4")
y.Reshape_2: float[1,4,4] = Reshape<allowzero=1>(s, "const.int64[3] 1 4 4")
y.Rotary: float[2,4,12] = onnx_fp8.Rotary<heads=3>(y.Reshape, y.Reshape_1, y.Reshape_2)
y.Reshape_3: float[2,4,3,4] = Reshape<allowzero=1>(y.Rotary, "const.int64[4] 2 4 3 4")
y: float[2,3,4,4] = Transpose<perm=[0,2,1,3]>(y.Reshape_3)
output y
)");
}

TEST(FuseRotary, HeadsBeside) {
  EXPECT_EQ(AfterPass(FuseRotary, Rotary("[1,3,1,4]", kSlices)),
            R"(graph "g" opset 20
input x: float[2,3,4,4]
const c: float[1,3,1,4]
const s: float[1,3,1,4]
const "const.int64[3] 2 3 16": int64[3] = {2,3,16}
const "const.int64[3] 1 3 4": int64[3] = {1,3,4}
const "const.int64[4] 2 3 4 4": int64[4] = {2,3,4,4}
y.Reshape: float[2,3,16] = Reshape<allowzero=1>(x, "const.int64[3] 2 3 16")
y.Reshape_1: float[1,3,4] = Reshape<allowzero=1>(c, "const.int64[3] 1 3 4")
y.Reshape_2: float[1,3,4] = Reshape<allowzero=1>(s, "const.int64[3] 1 3 4")
y.Rotary: float[2,3,16] = onnx_fp8.Rotary<heads=4>(y.Reshape, y.Reshape_1, y.Reshape_2)
y: float[2,3,4,4] = Reshape<allowzero=1>(y.Rotary, "const.int64[4] 2 3 4 4")
output y
)");
}

TEST(FuseRotary, HoweverItIsWritten) {
  for (const char* table : {"[4,4]", "[1,4,4]", "[1,1,4,4]", "[2,1,4,4]",
                            "[3,1,4]", "[1,3,1,4]", "[2,3,1,4]"}) {
    for (const char* halves : {kSplit, kSlices}) {
      for (const char* sum : {"Add(a, b)", "Add(b, a)"}) {
        std::string text = Rotary(table, halves, "Concat<axis=3>(m, x1)", sum);
        EXPECT_NE(AfterPass(FuseRotary, text).find("Rotary"), std::string::npos)
            << text;
        ExpectSameValues(FuseRotary, text, 1e-6);
      }
    }
  }
}

TEST(FuseRotary, LeavesWhatItDoesNotKnow) {
  std::string trained =
      Rotary("[4,4]", kSplit, "Concat<axis=-1>(m, x1)", "Add(a, b)", "param");
  std::string swapped = kSlices;
  swapped.replace(swapped.find("zero, two"), 9, "one, last");
  for (const std::string& text :
       {trained, Rotary("[4,4]", swapped),
        Rotary("[3,4,4]", kSplit),  // another table for each head
        Rotary("[4,4]", kSplit, "Concat<axis=-1>(x1, m)"),
        Rotary("[4,4]", kSplit, "Concat<axis=-1>(m, m)"),
        Rotary("[4,4]", kSplit) + "output b\n"}) {
    ExpectStays(FuseRotary, text);
  }
}

}  // namespace
}  // namespace onnx_fp8
