// SPDX-License-Identifier: Apache-2.0
//
// The largest update, alone and as a result of updates, has the CPU's bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

const Shape kMeasuredShape = {9, 130};
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// Between `least` and `least` + 1.
Tensor FloatsFrom(float least, uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, kMeasuredShape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) + least;
  }
  return t;
}

// An element of it is `special`.
Tensor GradientWith(float special) {
  Tensor t = FloatsFrom(-0.5f, 7);
  t.data<float>()[t.size() - 1] = special;
  return t;
}

Tensor CodesFrom(int first) {
  Tensor codes = Tensor::Allocate(DType::kE4M3, kMeasuredShape);
  for (int64_t i = 0; i < codes.size(); ++i) {
    codes.data<E4M3>()[i].bits = static_cast<uint8_t>(first + i % 60);
  }
  return codes;
}

// 0.875³ and 0.75³ are exact.
constexpr char kAdamNumbers[] =
    "eps=0.0625, one_minus_beta1=0.125, one_minus_beta2=0.25";
constexpr char kScalarsOfStep[] = R"(const step: int64[] = {3}
const lr: float[] = {0.125}
const clip: float[] = {0.75}
const seed: int64[] = {5000000000}
input ok: bool[]
input g: float[9,130]
input w: float[9,130]
)";

// The update's results in order.
void ExpectCpusUpdate(const std::string& text, TensorMap feeds) {
  auto graph = [&] {
    std::shared_ptr<Graph> made = ParseGraph(text);
    made->outputs = made->nodes().front().outputs();
    return made;
  };
  for (bool ok : {true, false}) {
    for (float special :
         {0.25f, 1e15f, -std::numeric_limits<float>::infinity(), kNotANumber}) {
      feeds["g"] = GradientWith(special);
      feeds["ok"] = Tensor::Scalar(ok);
      ExpectCpusBytes(graph(), graph(), feeds,
                      Concat("ok ", ok, ", special ", special));
    }
  }
}

std::string AdamWText(const std::string& results, const std::string& more) {
  return Concat("p: float[9,130], ", results,
                ", amax: float[] = ", "onnx_fp8.AdamW<", kAdamNumbers,
                ", lr_scale=0.5, weight_decay=0.25, begin=0, row=1, shift=0, "
                "stream=99, stride=1>(w, g, m, v, step, lr, clip, ok, seed, "
                "step",
                more, ")\n");
}

TEST(CudaUpdateAmax, OfMomentsInBfloat16) {
  const std::string text = Concat(
      kScalarsOfStep, "input m: bfloat16[9,130]\ninput v: bfloat16[9,130]\n",
      AdamWText("n: bfloat16[9,130], u: bfloat16[9,130]", ""));
  Tensor means = FloatsFrom(-0.5f, 3);
  for (bool overflows : {false, true}) {
    if (overflows) means.data<float>()[40] = 3e38f;
    ExpectCpusUpdate(
        text, {{"w", FloatsFrom(-0.5f, 1)},
               {"m", ConvertTo(means, DType::kBFloat16)},
               {"v", ConvertTo(FloatsFrom(0.01f, 4), DType::kBFloat16)}});
  }
}

TEST(CudaUpdateAmax, OfMomentsAsCodes) {
  const std::string codes = "float8e4m3fn[9,130]", scale = "float[9,2]";
  const std::string text =
      Concat(kScalarsOfStep, "input m: ", codes, "\ninput v: ", codes,
             "\ninput m_s: ", scale, "\ninput v_s: ", scale, "\n",
             AdamWText(Concat("n: ", codes, ", u: ", codes, ", n_s: ", scale,
                              ", u_s: ", scale),
                       ", m_s, v_s"));
  Tensor scales = Tensor::Allocate(DType::kFloat, {9, 2});
  for (int64_t i = 0; i < scales.size(); ++i) {
    scales.data<float>()[i] = std::ldexp(1.1f, static_cast<int>(i % 7) - 9);
  }
  ExpectCpusUpdate(text, {{"w", FloatsFrom(-0.5f, 1)},
                          {"m", CodesFrom(20)},
                          {"v", CodesFrom(40)},
                          {"m_s", scales},
                          {"v_s", scales}});
}

TEST(CudaUpdateAmax, Alone) {
  for (const char* shape : {"9,130", "0,130"}) {
    const std::string text = Concat(
        "const step: int64[] = {3}\ninput m: float[", shape,
        "]\ninput v: float[", shape, "]\namax: float[] = onnx_fp8.UpdateAmax<",
        kAdamNumbers, ">(m, v, step)\n");
    auto graph = [&] {
      std::shared_ptr<Graph> made = ParseGraph(text);
      made->outputs = made->nodes().front().outputs();
      return made;
    };
    const bool empty = shape[0] == '0';
    const Tensor none = Tensor::Zeros(DType::kFloat, {0, 130});
    for (float special : {0.25f, 1e30f, kNotANumber}) {
      ExpectCpusBytes(graph(), graph(),
                      {{"m", empty ? none : GradientWith(special)},
                       {"v", empty ? none : FloatsFrom(0, 4)}},
                      Concat(shape, ", special ", special));
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
