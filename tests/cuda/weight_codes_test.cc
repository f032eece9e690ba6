// SPDX-License-Identifier: Apache-2.0
//
// FP8 codes of new parameters, which updates make, have the CPU's bits.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

const Shape kShapeOfNewCodes = {9, 130};

// Between -0.5 and 0.5.
Tensor FloatsOfNewCodes(uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, kShapeOfNewCodes);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) - 0.5f;
  }
  return t;
}

struct NewCodes {
  const char* name;
  const char* inputs;   // beside the gradient and scalars
  const char* results;  // before the codes
  const char* op;       // with its first attributes
  const char* operands;
  const char* attributes;  // of the codes
  const char* code;
};

void PrintTo(const NewCodes& c, std::ostream* out) { *out << c.name; }

constexpr char kE4M3Codes[] = "float8e4m3fn";
const NewCodes kNewCodes[] = {
    {"SGD", "input w: float[9,130]\n", "p: float[9,130]",
     "SGD<lr_scale=0.5, weight_decay=0.25", "w, g, lr, clip, ok",
     "to=17, q_max=448.0, round_to=16", kE4M3Codes},
    {"AdamWDrawn",
     "input w: bfloat16[9,130]\ninput m: float[9,130]\n"
     "input v: float[9,130]\n",
     "p: bfloat16[9,130], n: float[9,130], u: float[9,130]",
     "AdamW<eps=0.0625, lr_scale=0.5, weight_decay=0.25, "
     "one_minus_beta1=0.125, one_minus_beta2=0.25, begin=3, row=50, shift=70, "
     "stride=200, master_stream=99",
     "w, g, m, v, step, lr, clip, ok, seed, step",
     "to=19, q_max=57344.0, round_to=1", "float8e5m2"},
    {"AdamWSplit8OfCodes",
     "input w: bfloat16[9,130]\ninput c: int8[9,130]\n"
     "input m: float8e4m3fn[9,130]\ninput v: float8e4m3fn[9,130]\n"
     "input m_s: float[9,2]\ninput v_s: float[9,2]\n",
     "p: bfloat16[9,130], n: float8e4m3fn[9,130], u: float8e4m3fn[9,130], "
     "d: int8[9,130], n_s: float[9,2], u_s: float[9,2], a: float[]",
     "AdamW<eps=0.0625, lr_scale=0.5, weight_decay=0.25, "
     "one_minus_beta1=0.125, one_minus_beta2=0.25, begin=3, row=50, shift=70, "
     "stream=7, stride=200, correction=3",
     "w, g, m, v, step, lr, clip, ok, c, seed, step, m_s, v_s",
     "to=17, q_max=448.0, round_to=1", kE4M3Codes}};

class CudaWeightCodes : public testing::TestWithParam<NewCodes> {};

INSTANTIATE_TEST_SUITE_P(All, CudaWeightCodes, testing::ValuesIn(kNewCodes),
                         [](const auto& info) { return info.param.name; });

// A scale of 0 is not known yet.
TEST_P(CudaWeightCodes, AreTheCpus) {
  const NewCodes& c = GetParam();
  const std::string text = Concat(
      "const step: int64[] = {3}\nconst lr: float[] = {0.125}\n"
      "const clip: float[] = {0.75}\nconst seed: int64[] = {5000000000}\n"
      "input ok: bool[]\ninput g: float[9,130]\ninput s: float[]\n",
      c.inputs, c.results, ", q: ", c.code,
      "[9,130], q_s: float[], q_a: float[] = onnx_fp8.", c.op, ", ",
      c.attributes, ">(", c.operands, ", s)\n");
  auto graph = [&] {
    std::shared_ptr<Graph> made = ParseGraph(text);
    made->outputs = made->nodes().front().outputs();
    return made;
  };
  Tensor gradient = FloatsOfNewCodes(2);
  gradient.data<float>()[300] = std::numeric_limits<float>::quiet_NaN();
  TensorMap feeds;
  const std::shared_ptr<Graph> of_inputs = graph();
  for (const Value* input : of_inputs->inputs) {
    feeds[input->name] = Tensor::Zeros(input->dtype, *input->shape);
  }
  feeds["g"] = gradient;
  feeds["w"] = ConvertTo(FloatsOfNewCodes(1), feeds.at("w").dtype());
  for (float scale : {0.0f, 0.001f}) {
    for (bool ok : {true, false}) {
      feeds["s"] = Tensor::Scalar(scale);
      feeds["ok"] = Tensor::Scalar(ok);
      ExpectCpusBytes(graph(), graph(), feeds,
                      Concat(c.name, ", scale ", scale, ", ok ", ok));
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
