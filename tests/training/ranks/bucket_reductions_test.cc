// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/bucket_reductions.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// The nodes of the graph, one a line: results and bucket.
std::string Bucketed(const std::string& text, int64_t bytes) {
  auto graph = ParseGraph(text);
  BucketReductions(*graph, bytes);
  Verify(*graph);
  std::string lines;
  for (const Node& node : graph->nodes()) {
    lines += (lines.empty() ? "" : " ") + node.out(0)->name;
    if (int64_t bucket = node.Int("bucket", 0)) {
      lines += ":" + std::to_string(bucket);
    }
  }
  return lines;
}

// Gradients of 16 bytes, in the order b, c, d; their sums stand at the end.
constexpr char kGradients[] = R"(
input x: float[4]
b: float[4] = Neg(x)
c: float[4] = Abs(b)
d: float[4] = Exp(c)
e: float[4] = Sin(d)
sd: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(d)
sb: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(b)
sc: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(c)
y: float[4] = Sum(sb, sc, sd, e)
output y
)";

TEST(BucketReductions, StartWhenTheLastOperandIsThere) {
  EXPECT_EQ(Bucketed(kGradients, 0), "b sb c sc d sd e y");
  EXPECT_EQ(Bucketed(kGradients, 31), "b sb c sc d sd e y");
  EXPECT_EQ(Bucketed(kGradients, 32), "b c sb:1 sc:1 d sd e y");
  EXPECT_EQ(Bucketed(kGradients, 1000), "b c d sb:1 sc:1 sd:1 e y");
}

// Sums of other kinds have buckets of their own. Maxima have none.
TEST(BucketReductions, Kinds) {
  EXPECT_EQ(Bucketed(R"(
input x: float[4]
input n: int64[4]
a: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
m: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="max">(x)
r: float[2] = onnx_fp8.ReduceScatter<group="dp", ranks=2>(x)
i: int64[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(n)
o: float[4] = onnx_fp8.AllReduce<group="tp", ranks=2, reduction="sum">(x)
b: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
s: float[2] = onnx_fp8.ReduceScatter<group="dp", ranks=2>(x)
output a
output m
output r
output i
output o
output b
output s
)",
                     1000),
            "m i o a:1 b:1 r:2 s:2");
}

// `d` needs `a`, so they are in two buckets.
TEST(BucketReductions, SumsOfSums) {
  EXPECT_EQ(Bucketed(R"(
input x: float[4]
a: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
half: float[4] = Mul(a, a)
b: float[4] = Neg(x)
c: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(b)
d: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(half)
output c
output d
)",
                     1000),
            "a half b d:1 c:1");
}

// Sums over two axes: each axis has buckets of its own.
TEST(BucketReductions, TwoAxes) {
  EXPECT_EQ(Bucketed(R"(
input x: float[4]
b: float[4] = Neg(x)
c: float[4] = Abs(b)
d: float[4] = Exp(c)
db: float[2] = onnx_fp8.ReduceScatter<group="dp", ranks=2>(b)
rb: float[2] = onnx_fp8.AllReduce<group="replicate", ranks=2, reduction="sum">(db)
dc: float[2] = onnx_fp8.ReduceScatter<group="dp", ranks=2>(c)
rc: float[2] = onnx_fp8.AllReduce<group="replicate", ranks=2, reduction="sum">(dc)
output d
output rb
output rc
)",
                     1000),
            "b c db:1 dc:1 rb:2 rc:2 d");
}

// Nodes that read a sum come behind its bucket.
TEST(BucketReductions, ReadersOfASum) {
  EXPECT_EQ(Bucketed(R"(
input x: float[4]
a: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
half: float[4] = Mul(a, a)
b: float[4] = Neg(x)
c: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(b)
output c
output half
)",
                     1000),
            "b a:1 half c:1");
}

TEST(BucketReductions, LongRingsHaveLargeBuckets) {
  EXPECT_EQ(DefaultBucketBytes(1), 25 << 20);
  EXPECT_EQ(DefaultBucketBytes(12), 25 << 20);
  EXPECT_EQ(DefaultBucketBytes(13), 26 << 20);
  EXPECT_EQ(DefaultBucketBytes(512), 1 << 30);
}

}  // namespace
}  // namespace onnx_fp8
