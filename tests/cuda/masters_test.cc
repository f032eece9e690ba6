// SPDX-License-Identifier: Apache-2.0
//
// Masters that are kept as bfloat16s, with or without a correction, have the
// CPU's bits, alone and in updates.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
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
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

// Any bits, NaN's too. The last element has no three others beside it.
Tensor AnyBits() {
  Tensor x = Tensor::Allocate(DType::kFloat, {1501});
  for (int64_t i = 0; i < x.size(); ++i) {
    const uint64_t bits = RandomBits(1, static_cast<uint64_t>(i)) >> 32;
    x.data<float>()[i] = std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
  const uint32_t ends[] = {0,          0x80000000, 1,          0x8000FFFF,
                           0x7F7F8000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
                           0xFF800000, 0x7FC00000, 0x7F800001, 0x3F80FFFF,
                           0x3F808000, 0x3F818000, 0x3F800180, 0x00007FFF};
  std::memcpy(x.raw(), ends, sizeof ends);
  return x;
}

TEST(CudaMasters, AreTheCpus) {
  for (int correction : {3, 5}) {
    const std::string type = correction == 3 ? "int8" : "int16";
    const std::string text = Concat(
        "input x: float[1501]\n", "h: bfloat16[1501], c: ", type,
        "[1501] = onnx_fp8.EncodeMaster<correction=", correction, ">(x)\n",
        "y: float[1501] = onnx_fp8.DecodeMaster<correction=", correction,
        ">(h, c)\n");
    auto graph = [&] {
      std::shared_ptr<Graph> made = ParseGraph(text);
      made->outputs = {made->Find("h"), made->Find("c"), made->Find("y")};
      return made;
    };
    ExpectCpusBytes(graph(), graph(), {{"x", AnyBits()}}, type);
  }
}

// The last block of a row has two elements.
const Shape kShapeOfMaster = {9, 130};

// Between -0.5 and 0.5.
Tensor EvenMasters(uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, kShapeOfMaster);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) - 0.5f;
  }
  return t;
}

// Some are not finite, some are large.
Tensor GradientOfMasters(uint64_t seed) {
  Tensor t = EvenMasters(seed);
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const float steep[] = {0,         -0.0f,
                         kInfinite, 1e19f,
                         1e-40f,    std::numeric_limits<float>::quiet_NaN()};
  for (size_t i = 0; i < std::size(steep); ++i) {
    t.data<float>()[140 * i] = steep[i];
  }
  return t;
}

struct MasterUpdate {
  const char* name;
  const char* op;  // with its attributes
  size_t moments;
  const char* kept;        // of moments
  const char* correction;  // its dtype; null: there is none
};

void PrintTo(const MasterUpdate& c, std::ostream* out) { *out << c.name; }

// 0.875³ and 0.75³ are exact.
constexpr char kAdamOfMasters[] =
    "<eps=0.0625, lr_scale=0.5, weight_decay=0.25, one_minus_beta1=0.125, "
    "one_minus_beta2=0.25, begin=4294967200, row=50, shift=70, "
    "stream=4294967295, stride=200, master_stream=99";
constexpr char kSgdOfMasters[] =
    "<lr_scale=0.5, weight_decay=0.25, begin=12, row=50, shift=70, "
    "stride=200, master_stream=99";
constexpr char kMomentumOfMasters[] = ", momentum=0.75, nesterov=1";

const MasterUpdate kMasterUpdates[] = {
    {"AdamSplit8", "Adam", 2, "float", "int8"},
    {"AdamWSplit", "AdamW", 2, "bfloat16", "int16"},
    {"AdamWSplit8OfCodes", "AdamW", 2, "float8e4m3fn", "int8"},
    {"AdamDrawnOfCodes", "Adam", 2, "float8e4m3fn", nullptr},
    {"AdamWDrawn", "AdamW", 2, "bfloat16", nullptr},
    {"AdamWDrawnOfFloats", "AdamW", 2, "float", nullptr},
    {"SGDSplit8", "SGD", 0, "float", "int8"},
    {"SGDDrawn", "SGD", 0, "float", nullptr},
    {"SGDMomentumSplit", "SGDMomentum", 1, "float", "int16"},
    {"SGDMomentumSplit8OfCodes", "SGDMomentum", 1, "float8e4m3fn", "int8"},
    {"SGDMomentumDrawnOfCodes", "SGDMomentum", 1, "float8e4m3fn", nullptr}};

// The node in the layout of providers/ops/update_layout.h. It updates state in
// its place, or (`kept` false) its results are the graph's.
std::string TextOfMaster(const MasterUpdate& c, bool kept = true) {
  const bool adam = c.moments == 2;
  const bool codes = c.kept == std::string("float8e4m3fn");
  const bool draws = adam && c.kept != std::string("float");
  const std::string size = "[9,130]";
  std::string states =
      Concat(kept ? "param" : "input", " w: bfloat16", size, "\n");
  std::string binds = "update w = p\n";
  std::string results = Concat("p: bfloat16", size);
  std::string operands = "w, g";
  std::string rest = adam ? ", step, lr, clip, ok" : ", lr, clip, ok";
  std::string attributes = Concat(adam ? kAdamOfMasters : kSgdOfMasters,
                                  c.moments == 1 ? kMomentumOfMasters : "");
  auto state = [&](const std::string& role, const std::string& name,
                   const std::string& type) {
    states += Concat(kept ? role : "input", " ", name, ": ", type, "\n");
    binds += Concat("update ", name, " = ", name, "_next\n");
    results += Concat(", ", name, "_next: ", type);
  };
  for (size_t i = 0; i < c.moments; ++i) {
    const std::string name = i == 0 ? "m" : "v";
    state("moment", name, c.kept + size);
    operands += ", " + name;
  }
  if (c.correction) {
    const bool narrow = c.correction == std::string("int8");
    attributes += narrow ? ", correction=3" : ", correction=5";
    state("correction", "c", c.correction + size);
    rest += ", c";
  } else {
    rest += ", seed, step";
  }
  if (draws) rest += ", seed, step";
  for (size_t i = 0; codes && i < c.moments; ++i) {
    const std::string name = i == 0 ? "m_s" : "v_s";
    state("moment", name, "float[9,2]");
    rest += ", " + name;
  }
  return Concat(
      "const step: int64[] = {3}\nconst lr: float[] = {0.125}\n"
      "const clip: float[] = {0.75}\n"
      "const seed: int64[] = {5000000000}\ninput ok: bool[]\n"
      "input g: float",
      size, "\n", states, results, " = onnx_fp8.", c.op, attributes, ">(",
      operands, rest, ")\n", kept ? binds : "");
}

class CudaUpdatesOfMasters : public testing::TestWithParam<MasterUpdate> {};

INSTANTIATE_TEST_SUITE_P(All, CudaUpdatesOfMasters,
                         testing::ValuesIn(kMasterUpdates),
                         [](const auto& info) { return info.param.name; });

// No operand is zero. Floats are positive, but for the gradient.
TensorMap FeedsOfMasters(const Graph& graph, bool ok) {
  TensorMap feeds = RandomFeeds(graph, {});
  uint64_t seed = 1000;
  for (const Value* input : graph.inputs) {
    Tensor& feed = feeds.at(input->name);
    if (feed.dtype() != DType::kFloat) {
      feed = RandomCodes(feed.dtype(), feed.shape(), ++seed);
      continue;
    }
    for (int64_t i = 0; i < feed.size(); ++i) {
      feed.data<float>()[i] = std::fabs(feed.data<float>()[i]);
    }
  }
  feeds["g"] = GradientOfMasters(12);
  feeds["ok"] = Tensor::Scalar(ok);
  return feeds;
}

// In a skipped step the results are copies of the operands.
TEST_P(CudaUpdatesOfMasters, InMemoryOfTheirOwnAreTheCpus) {
  const std::string text = TextOfMaster(GetParam(), false);
  auto graph = [&] {
    std::shared_ptr<Graph> made = ParseGraph(text);
    made->outputs = made->nodes().front().outputs();
    return made;
  };
  for (bool ok : {true, false}) {
    ExpectCpusBytes(graph(), graph(), FeedsOfMasters(*graph(), ok),
                    Concat("ok ", ok));
  }
}

// The state after steps of which one is skipped.
TensorMap StateOfMasters(const MasterUpdate& c, ExecutionProvider& provider) {
  Executor executor(ParseGraph(TextOfMaster(c)), provider);
  TensorMap state;
  for (uint64_t step = 0; step < 3; ++step) {
    const Tensor g = step == 2 ? GradientOfMasters(12) : EvenMasters(10 + step);
    executor.Run({{"g", g}, {"ok", Tensor::Scalar(step != 1)}}, state);
  }
  provider.Synchronize();
  for (auto& [name, tensor] : state) tensor = provider.ToHost(tensor).Clone();
  return state;
}

TEST_P(CudaUpdatesOfMasters, AreTheCpus) {
  auto cpu = MakeCpuProvider();
  auto cuda = MakeCudaProvider();
  const TensorMap want = StateOfMasters(GetParam(), *cpu);
  const TensorMap got = StateOfMasters(GetParam(), *cuda);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    EXPECT_TRUE(Identical(got.at(name), tensor)) << name;
  }
}

TEST(CudaMasters, ACorrectionOfAnotherTypeIsRefused) {
  std::string text = TextOfMaster(kMasterUpdates[0], false);
  const std::string from = "input c: int8";
  text.replace(text.find(from), from.size(), "input c: int16");
  const std::shared_ptr<Graph> graph = ParseGraph(text);
  graph->outputs = graph->nodes().front().outputs();
  auto cpu = MakeCpuProvider();
  auto cuda = MakeCudaProvider();
  for (ExecutionProvider* provider : {cpu.get(), cuda.get()}) {
    Executor executor(graph, *provider);
    TensorMap state;
    EXPECT_THROW(executor.Run(FeedsOfMasters(*graph, true), state), Error);
  }
}

}  // namespace
}  // namespace onnx_fp8
