// SPDX-License-Identifier: Apache-2.0
//
// Moments that are kept as FP8 codes give the CPU's bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/run/executor.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// The last block of a row has two elements.
const Shape kCodedShape = {9, 130};

// Between -0.5 and 0.5.
Tensor CodedFloats(uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, kCodedShape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) - 0.5f;
  }
  return t;
}

// Some are not finite, some are large.
Tensor SteepFloats(uint64_t seed) {
  Tensor t = CodedFloats(seed);
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const float steep[] = {0,     -0.0f,  kInfinite, -kInfinite,
                         1e20f, 1e-40f, kNone,     1e6f};
  for (size_t i = 0; i < std::size(steep); ++i) {
    t.data<float>()[140 * i] = steep[i];
  }
  return t;
}

Tensor Magnitudes(Tensor t) {
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = std::fabs(t.data<float>()[i]);
  }
  return t;
}

struct CodedUpdate {
  const char* name;
  const char* op;  // with its attributes
  bool adapts;     // has two moments
};

void PrintTo(const CodedUpdate& c, std::ostream* out) { *out << c.name; }

// 0.875³ and 0.75³ are exact.
const CodedUpdate kCodedUpdates[] = {
    {"Adam",
     "Adam<eps=0.0625, lr_scale=0.5, weight_decay=0.25, "
     "one_minus_beta1=0.125, one_minus_beta2=0.25, begin=0, row=1, shift=0, "
     "stream=99, stride=1>",
     true},
    {"AdamWOfAPart",
     "AdamW<eps=0.0625, lr_scale=0.5, weight_decay=0.25, "
     "one_minus_beta1=0.125, one_minus_beta2=0.25, begin=4294967200, row=50, "
     "shift=70, stream=4294967295, stride=200>",
     true},
    {"SGDMomentum",
     "SGDMomentum<momentum=0.75, nesterov=0, lr_scale=0.5, weight_decay=0.25>",
     false},
    {"Nesterov",
     "SGDMomentum<momentum=0.75, nesterov=1, lr_scale=0.5, weight_decay=0.25>",
     false}};

std::string CodedText(const CodedUpdate& c) {
  const std::string codes = "float8e4m3fn[9,130]", scale = "float[9,2]";
  std::string text = R"(const step: int64[] = {3}
const lr: float[] = {0.125}
const clip: float[] = {0.75}
const seed: int64[] = {5000000000}
input ok: bool[]
input g: float[9,130]
param w: float[9,130]
)";
  text += Concat("moment m: ", codes, "\nmoment m_s: ", scale, "\n");
  if (!c.adapts) {
    return Concat(text, "p: float[9,130], n: ", codes, ", n_s: ", scale,
                  " = onnx_fp8.", c.op, "(w, g, m, lr, clip, ok, m_s)\n",
                  "update w = p\nupdate m = n\nupdate m_s = n_s\n");
  }
  text += Concat("moment v: ", codes, "\nmoment v_s: ", scale, "\n");
  return Concat(text, "p: float[9,130], n: ", codes, ", u: ", codes,
                ", n_s: ", scale, ", u_s: ", scale, " = onnx_fp8.", c.op,
                "(w, g, m, v, step, lr, clip, ok, seed, step, m_s, v_s)\n",
                "update w = p\nupdate m = n\nupdate v = u\n",
                "update m_s = n_s\nupdate v_s = u_s\n");
}

// The state after steps of which one is skipped.
TensorMap CodedState(const CodedUpdate& c, ExecutionProvider& provider) {
  Executor executor(ParseGraph(CodedText(c)), provider);
  TensorMap state;
  for (uint64_t step = 0; step < 3; ++step) {
    executor.Run({{"g", step == 2 ? SteepFloats(12) : CodedFloats(10 + step)},
                  {"ok", Tensor::Scalar(step != 1)}},
                 state);
  }
  provider.Synchronize();
  for (auto& [name, tensor] : state) tensor = provider.ToHost(tensor).Clone();
  return state;
}

class CudaMomentCodes : public testing::TestWithParam<CodedUpdate> {};

INSTANTIATE_TEST_SUITE_P(All, CudaMomentCodes, testing::ValuesIn(kCodedUpdates),
                         [](const auto& info) { return info.param.name; });

TEST_P(CudaMomentCodes, AreTheCpus) {
  auto cpu = MakeCpuProvider();
  auto cuda = MakeCudaProvider();
  const TensorMap want = CodedState(GetParam(), *cpu);
  const TensorMap got = CodedState(GetParam(), *cuda);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    EXPECT_TRUE(Identical(got.at(name), tensor)) << name;
  }
}

// Outputs are the nodes' results.
std::shared_ptr<Graph> GraphOfCodes(const std::string& text) {
  std::shared_ptr<Graph> graph = ParseGraph(text);
  for (const Node& node : graph->nodes()) {
    graph->outputs.insert(graph->outputs.end(), node.outputs().begin(),
                          node.outputs().end());
  }
  return graph;
}

TEST(CudaMomentOps, GiveTheCpusBits) {
  const std::string text = R"(input x: float[9,130]
input v: float[9,130]
input codes: float8e4m3fn[9,130]
input scale: float[9,2]
input ok: bool[]
const seed: int64[] = {5000000000}
const update: int64[] = {41}
a: float8e4m3fn[9,130], a_s: float[9,2] = onnx_fp8.EncodeMoment(x, codes, scale, ok)
b: float8e4m3fn[9,130], b_s: float[9,2] = onnx_fp8.EncodeSecondMoment<begin=2, row=100, shift=3, stream=3, stride=4294967296>(v, codes, scale, ok, seed, update)
c: float[9,130] = onnx_fp8.DecodeMoment<squared=0>(codes, scale)
d: float[9,130] = onnx_fp8.DecodeMoment<squared=1>(codes, scale)
)";
  Tensor codes = Tensor::Allocate(DType::kE4M3, kCodedShape);
  for (int64_t i = 0; i < codes.size(); ++i) {
    // A product with NaN has another NaN on a GPU.
    codes.data<E4M3>()[i].bits = static_cast<uint8_t>(i % 127 + i % 2 * 128);
  }
  Tensor scale = Tensor::Allocate(DType::kFloat, {9, 2});
  for (int64_t i = 0; i < scale.size(); ++i) {
    scale.data<float>()[i] = std::ldexp(1.1f, static_cast<int>(7 * i - 60));
  }
  for (bool ok : {true, false}) {
    ExpectCpusBytes(GraphOfCodes(text), GraphOfCodes(text),
                    {{"x", SteepFloats(1)},
                     {"v", Magnitudes(SteepFloats(2))},
                     {"codes", codes},
                     {"scale", scale},
                     {"ok", Tensor::Scalar(ok)}},
                    Concat("ok ", ok));
  }
}

}  // namespace
}  // namespace onnx_fp8
