// SPDX-License-Identifier: Apache-2.0
//
// Moments that are kept as bfloat16, and their rounding, give the CPU's bits.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
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

constexpr int64_t kElementsOfMoments = 1500;

// Between -0.5 and 0.5.
Tensor EvenFloats(uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, {kElementsOfMoments});
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) - 0.5f;
  }
  return t;
}

// Some are not finite, some are large.
Tensor WildGradient(uint64_t seed) {
  Tensor t = EvenFloats(seed);
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const float wild[] = {0, -0.0f, kInfinite, -kInfinite, 1e19f, 1e-40f, kNone};
  for (size_t i = 0; i < std::size(wild); ++i) {
    t.data<float>()[100 * i] = wild[i];
  }
  return t;
}

// Squares are positive.
Tensor Squares(uint64_t seed) {
  Tensor t = EvenFloats(seed);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] += 0.5f;
  t.data<float>()[400] = 3e38f;
  return ConvertTo(t, DType::kBFloat16);
}

struct UpdateOfMoments {
  const char* name;
  const char* results;   // behind the parameter
  const char* op;        // with its attributes
  const char* operands;  // behind the gradient
};

void PrintTo(const UpdateOfMoments& c, std::ostream* out) { *out << c.name; }

// 0.875³ and 0.75³ are exact.
constexpr char kAdamOperands[] = "m, v, step, lr, clip, ok, seed, step";
const UpdateOfMoments kUpdatesOfMoments[] = {
    {"Adam", ", n: bfloat16[1500], u: bfloat16[1500]",
     "Adam<eps=0.0625, lr_scale=0.5, weight_decay=0.25, "
     "one_minus_beta1=0.125, one_minus_beta2=0.25, begin=0, row=1, shift=0, "
     "stream=99, stride=1>",
     kAdamOperands},
    {"AdamWOfAPart", ", n: bfloat16[1500], u: bfloat16[1500]",
     "AdamW<eps=0.0625, lr_scale=0.5, weight_decay=0.25, "
     "one_minus_beta1=0.125, one_minus_beta2=0.25, begin=4294967200, row=50, "
     "shift=70, stream=4294967295, stride=200>",
     kAdamOperands},
    {"SGDMomentum", ", n: bfloat16[1500]",
     "SGDMomentum<momentum=0.75, nesterov=0, lr_scale=0.5, weight_decay=0.25>",
     "m, lr, clip, ok"},
    {"Nesterov", ", n: bfloat16[1500]",
     "SGDMomentum<momentum=0.75, nesterov=1, lr_scale=0.5, weight_decay=0.25>",
     "m, lr, clip, ok"}};

std::string NodeOf(const UpdateOfMoments& c) {
  return Concat("p: float[1500]", c.results, " = onnx_fp8.", c.op, "(w, g, ",
                c.operands, ")\n");
}

constexpr char kScalarsOfUpdate[] = R"(const step: int64[] = {3}
const lr: float[] = {0.125}
const clip: float[] = {0.75}
const seed: int64[] = {5000000000}
input ok: bool[]
input g: float[1500]
)";

class CudaMoments : public testing::TestWithParam<UpdateOfMoments> {};

INSTANTIATE_TEST_SUITE_P(All, CudaMoments, testing::ValuesIn(kUpdatesOfMoments),
                         [](const auto& info) { return info.param.name; });

TEST_P(CudaMoments, InMemoryOfTheirOwnAreTheCpus) {
  const std::string text =
      Concat(kScalarsOfUpdate,
             "input w: float[1500]\ninput m: bfloat16[1500]\n"
             "input v: bfloat16[1500]\n",
             NodeOf(GetParam()));
  auto graph = [&] {
    std::shared_ptr<Graph> made = ParseGraph(text);
    made->outputs = made->nodes().front().outputs();
    return made;
  };
  for (bool ok : {true, false}) {
    ExpectCpusBytes(graph(), graph(),
                    {{"w", EvenFloats(1)},
                     {"g", WildGradient(2)},
                     {"m", ConvertTo(EvenFloats(3), DType::kBFloat16)},
                     {"v", Squares(4)},
                     {"ok", Tensor::Scalar(ok)}},
                    Concat(GetParam().name, ", ok ", ok));
  }
}

// The state after steps of which one is skipped.
TensorMap StateAfter(const std::shared_ptr<Graph>& graph,
                     ExecutionProvider& provider) {
  Executor executor(graph, provider);
  TensorMap state;
  for (uint64_t step = 0; step < 3; ++step) {
    executor.Run(
        {{"g", WildGradient(10 + step)}, {"ok", Tensor::Scalar(step != 1)}},
        state);
  }
  provider.Synchronize();
  for (auto& [name, tensor] : state) tensor = provider.ToHost(tensor).Clone();
  return state;
}

TEST_P(CudaMoments, InTheirPlaceAreTheCpus) {
  const bool squares = std::string(GetParam().operands).starts_with("m, v");
  const std::string text = Concat(
      kScalarsOfUpdate, "param w: float[1500]\n", "moment m: bfloat16[1500]\n",
      squares ? "moment v: bfloat16[1500]\n" : "", NodeOf(GetParam()),
      "update w = p\nupdate m = n\n", squares ? "update v = u\n" : "");
  auto cpu = MakeCpuProvider();
  auto cuda = MakeCudaProvider();
  const TensorMap want = StateAfter(ParseGraph(text), *cpu);
  const TensorMap got = StateAfter(ParseGraph(text), *cuda);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    EXPECT_TRUE(Identical(got.at(name), tensor)) << name;
  }
}

TEST(CudaRoundStochastic, GivesTheCpusBits) {
  Tensor x = Tensor::Allocate(DType::kFloat, {kElementsOfMoments});
  for (int64_t i = 0; i < x.size(); ++i) {
    const uint64_t bits = RandomBits(1, static_cast<uint64_t>(i)) >> 32;
    x.data<float>()[i] = std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
  const uint32_t ends[] = {0,          0x80000000, 1,          0x8000FFFF,
                           0x7F7F0001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
                           0xFF800000, 0x7FC00000, 0x7F800001, 0x3F80FFFF};
  std::memcpy(x.raw(), ends, sizeof ends);
  for (const char* places :
       {"begin=0, row=1, shift=0, stream=1, stride=1",
        "begin=4294967000, row=1, shift=0, stream=4294967295, stride=1",
        "begin=0, row=7, shift=5, stream=3, stride=21",
        "begin=12, row=64, shift=4294967290, stream=3, stride=64",
        "begin=2, row=100, shift=3, stream=3, stride=4294967296"}) {
    const std::string text = Concat(
        "input x: float[1500]\ninput seed: int64[]\ninput update: int64[]\n"
        "y: bfloat16[1500] = onnx_fp8.RoundStochastic<",
        places, ">(x, seed, update)\n");
    auto graph = [&] {
      std::shared_ptr<Graph> made = ParseGraph(text);
      made->outputs = made->nodes().front().outputs();
      return made;
    };
    ExpectCpusBytes(graph(), graph(),
                    {{"x", x},
                     {"seed", Tensor::Scalar(int64_t{0x7234567890ABCDEF})},
                     {"update", Tensor::Scalar(int64_t{41})}},
                    places);
  }
}

}  // namespace
}  // namespace onnx_fp8
