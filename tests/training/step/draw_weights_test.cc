// SPDX-License-Identifier: Apache-2.0
#include "training/step/draw_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "graph/export_record.h"
#include "onnx_fp8/option_error.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr char kBlock[] = R"(
input ids: int64[2,3]
const table: float[64,32]
const position: float[1,3,32]
const scale: float[32]
const shift: float[32]
const w: float[32,48]
const b: float[48]
const gain: float[48]
const power: float[]
const row: float[1,48]
e: float[2,3,32] = Gather(table, ids)
p: float[2,3,32] = Add(e, position)
n: float[2,3,32] = LayerNormalization(p, scale, shift)
m: float[2,3,48] = MatMul(n, w)
a: float[2,3,48] = Add(m, b)
g: float[2,3,48] = Mul(a, gain)
h: float[2,3,48] = Pow(g, power)
flat: float[48,1] = Transpose<perm=[1,0]>(row)
y: float[2,3,1] = MatMul(h, flat)
output y
)";

const std::set<std::string> kNames = {
    "table", "position", "scale", "shift", "w", "b", "gain", "power", "row"};

std::unique_ptr<Graph> Drawn(uint64_t seed) {
  auto graph = ParseGraph(kBlock);
  DrawWeights("normal:0.5", {{"w.bin"}, kNames}, seed, graph.get());
  return graph;
}

const float* Numbers(const Graph& graph, const std::string& name) {
  return graph.Find(name)->data.data<float>();
}

void ExpectAll(const Graph& graph, const std::string& name, float number) {
  const Tensor& t = graph.Find(name)->data;
  for (int64_t i = 0; i < t.size(); ++i) {
    ASSERT_EQ(t.data<float>()[i], number) << name;
  }
}

void ExpectNormal(const Graph& graph, const std::string& name) {
  const Tensor& t = graph.Find(name)->data;
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < t.size(); ++i) {
    double x = t.data<float>()[i] / 0.5;
    sum += x;
    squares += x * x;
  }
  auto n = static_cast<double>(t.size());
  // Five deviations of these means.
  EXPECT_LT(std::abs(sum / n), 5 / std::sqrt(n)) << name;
  EXPECT_LT(std::abs(squares / n - 1), 5 * std::sqrt(2 / n)) << name;
}

TEST(DrawWeights, ByTheirReaders) {
  auto graph = Drawn(0);
  for (const char* name : {"table", "position", "w", "row"}) {
    ExpectNormal(*graph, name);
  }
  for (const char* name : {"scale", "gain", "power"}) {
    ExpectAll(*graph, name, 1);
  }
  for (const char* name : {"shift", "b"}) ExpectAll(*graph, name, 0);
}

TEST(DrawWeights, DependOnSeedNameAndElementAlone) {
  auto graph = Drawn(0), again = Drawn(0), other = Drawn(1);
  for (int i = 0; i < 96; ++i) {
    EXPECT_EQ(Numbers(*graph, "w")[i], Numbers(*again, "w")[i]);
    EXPECT_NE(Numbers(*graph, "w")[i], Numbers(*other, "w")[i]);
    EXPECT_NE(Numbers(*graph, "w")[i], Numbers(*graph, "table")[i]);
  }
  // The same name in another shape.
  auto wide = ParseGraph(R"(
input x: float[2,4]
const w: float[4,512]
y: float[2,512] = MatMul(x, w)
output y
)");
  DrawWeights("normal:0.5", {{"w.bin"}, {"w"}}, 0, wide.get());
  for (int i = 0; i < 1536; ++i) {
    EXPECT_EQ(Numbers(*graph, "w")[i], Numbers(*wide, "w")[i]);
  }
}

TEST(DrawWeights, StatisticsOfANewBatchNormalization) {
  auto graph = ParseGraph(R"(
input x: float[2,3,4]
const s: float[3]
const b: float[3]
const mean: float[3]
const var: float[3]
y: float[2,3,4] = BatchNormalization(x, s, b, mean, var)
output y
)");
  graph->metadata[kGraphSignature] = SignatureText(
      "pytorch", {{"mean", TensorKind::kBuffer}, {"var", TensorKind::kBuffer}});
  DrawWeights("normal:0.5", {{"w.bin"}, {"s", "b", "mean", "var"}}, 0,
              graph.get());
  for (const char* name : {"s", "var"}) ExpectAll(*graph, name, 1);
  for (const char* name : {"b", "mean"}) ExpectAll(*graph, name, 0);
}

TEST(DrawWeights, Refuses) {
  auto expect = [](const std::string& init, const MissingData& missing,
                   const std::string& text) {
    auto graph = ParseGraph(R"(
input x: float[2,4]
const w: float[4,3]
const mask: float[2,3]
const index: int64[2]
y: float[2,3] = MatMul(x, w)
z: float[2,3] = Add(y, mask)
v: float[2,3] = Gather(z, index)
output v
)");
    graph->metadata[kGraphSignature] =
        SignatureText("pytorch", {{"mask", TensorKind::kBuffer}});
    try {
      DrawWeights(init, missing, 0, graph.get());
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
          << error.what();
    }
  };
  for (const char* init : {"normal:", "normal:x", "normal:0", "normal:-1",
                           "normal:nan", "normal:inf", "normal:0.1 "}) {
    expect(init, {{"w.bin"}, {"w"}}, "expected normal:STD");
  }
  expect("normal:0.1", {}, "the model has all its data");
  expect("normal:0.1", {{"w.bin"}, {"w", "mask"}},
         "mask is a buffer or constant of the module");
  expect("normal:0.1", {{"w.bin"}, {"index"}}, "index is no float initializer");
  expect("normal:0.1", {{"w.bin"}, {"none"}}, "none is no float initializer");
}

}  // namespace
}  // namespace onnx_fp8
