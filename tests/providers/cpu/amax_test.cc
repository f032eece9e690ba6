// SPDX-License-Identifier: Apache-2.0
//
// The amax that a producer measures (KernelTraits::measures) must equal the
// amax of a pass over its result.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/check.h"
#include "base/parallel.h"
#include "graph/builder.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/store_narrow.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

struct Producer {
  const char* name;
  const char* node;  // of the inputs below
  int results = 1;   // the number of results that it measures
};

// Larger than a task and than a cached piece, and no multiple of either.
const char kInputs[] = R"(graph "g" opset 24
input x: float[3,67,200]
input z: float[3,67,200]
input w: float[200]
input c: float[1,67,50]
input mean: float[3,67,1]
input lse: float[3,4,67]
input half: float[3,67,100]
input scores: float[67,600]
input row: float[67]
input labels: int64[67]
const share: float[] = {1}
)";

const Producer kProducers[] = {
    {"Gelu", "y0: float[3,67,200] = Gelu(x)"},
    {"GeluTanh", "y0: float[3,67,200] = Gelu<approximate=\"tanh\">(x)"},
    {"GeluGrad", "y0: float[3,67,200] = onnx_fp8.GeluGrad(x, z)"},
    {"GeluTanhGrad", "y0: float[3,67,200] = onnx_fp8.GeluTanhGrad(x, z)"},
    {"GeluBiasGrad",
     "y0: float[3,67,200], db: float[200] = onnx_fp8.GeluBiasGrad(x, z)"},
    {"GeluTanhBiasGrad",
     "y0: float[3,67,200], db: float[200] = onnx_fp8.GeluTanhBiasGrad(x, z)"},
    {"SiluBiasGrad",
     "y0: float[3,67,200], db: float[200] = onnx_fp8.SiluBiasGrad(x, z)"},
    {"AddLayerNorm",
     "s: float[3,67,200], y0: float[3,67,200], m: float[3,67,1], "
     "i: float[3,67,1] = onnx_fp8.AddLayerNorm<axis=-1, epsilon=1e-05>"
     "(x, z, w, w)"},
    {"AddRMSNorm",
     "s: float[3,67,200], y0: float[3,67,200] = "
     "onnx_fp8.AddRMSNorm<axis=-1, epsilon=1e-05>(x, z, w)"},
    {"AddLayerNormGrad",
     "y0: float[3,67,200], ds: float[200], db: float[200] = "
     "onnx_fp8.AddLayerNormGrad<axis=2>(z, x, z, w, mean, mean)"},
    {"AddRMSNormGrad",
     "y0: float[3,67,200], ds: float[200] = "
     "onnx_fp8.AddRMSNormGrad<axis=2, epsilon=1e-05>(z, x, z, w)"},
    {"Silu", "y0: float[3,67,200] = onnx_fp8.Silu(x)"},
    {"SiluGrad", "y0: float[3,67,200] = onnx_fp8.SiluGrad(x, z)"},
    {"SwiGLU", "y0: float[3,67,200] = onnx_fp8.SwiGLU(x, z)"},
    {"SwiGLUGrad",
     "y0: float[3,67,200], y1: float[3,67,200] = "
     "onnx_fp8.SwiGLUGrad(x, z, x)",
     2},
    {"Add", "y0: float[3,67,200] = Add(x, z)"},
    {"AddRow", "y0: float[3,67,200] = Add(x, w)"},
    {"Sub", "y0: float[3,67,200] = Sub(x, z)"},
    {"Mul", "y0: float[3,67,200] = Mul(x, z)"},
    {"Div", "y0: float[3,67,200] = Div(x, z)"},
    {"Relu", "y0: float[3,67,200] = Relu(x)"},
    {"LeakyRelu", "y0: float[3,67,200] = LeakyRelu(x)"},
    {"ThresholdedRelu", "y0: float[3,67,200] = ThresholdedRelu<alpha=0.1>(x)"},
    {"HardSigmoid", "y0: float[3,67,200] = HardSigmoid(x)"},
    {"HardSwish", "y0: float[3,67,200] = HardSwish(x)"},
    {"Elu", "y0: float[3,67,200] = Elu(x)"},
    {"Selu", "y0: float[3,67,200] = Selu(x)"},
    {"Celu", "y0: float[3,67,200] = Celu(x)"},
    {"Sigmoid", "y0: float[3,67,200] = Sigmoid(x)"},
    {"Tanh", "y0: float[3,67,200] = Tanh(x)"},
    {"Swish", "y0: float[3,67,200] = Swish(x)"},
    {"Softplus", "y0: float[3,67,200] = Softplus(x)"},
    {"Softsign", "y0: float[3,67,200] = Softsign(x)"},
    {"Mish", "y0: float[3,67,200] = Mish(x)"},
    {"LayerNormalization",
     "y0: float[3,67,200] = LayerNormalization<axis=-1>(x, w)"},
    {"RMSNormalization",
     "y0: float[3,67,200] = RMSNormalization<axis=-1>(x, w)"},
    {"RMSNorm",
     "y0: float[3,67,200] = onnx_fp8.RMSNorm<axis=-1, epsilon=1e-05>(x, w)"},
    {"LayerNormGrad",
     "y0: float[3,67,200], ds: float[200], db: float[200] = "
     "onnx_fp8.LayerNormGrad<axis=2>(x, z, w, mean, mean)"},
    {"RMSNormGrad",
     "y0: float[3,67,200], ds: float[200] = "
     "onnx_fp8.RMSNormGrad<axis=2, epsilon=1e-05>(x, z, w)"},
    {"Rotary", "y0: float[3,67,200] = onnx_fp8.Rotary<heads=4>(x, c, c)"},
    {"RotaryGrad",
     "y0: float[3,67,200] = onnx_fp8.RotaryGrad<heads=4>(x, c, c)"},
    {"Attention",
     "y0: float[3,67,200], l: float[3,4,67] = onnx_fp8.Attention<heads=4, "
     "kv_heads=4, scale=0.1, causal=1>(x, z, x)"},
    {"AttentionGrad",
     "y0: float[3,67,200], y1: float[3,67,200], y2: float[3,67,200] = "
     "onnx_fp8.AttentionGrad<heads=4, kv_heads=4, scale=0.1, causal=1>"
     "(z, x, z, x, z, lse)",
     3},
    {"AttentionPacked",
     "y0: float[3,67,100], l: float[3,4,67] = onnx_fp8.AttentionPacked<"
     "heads=4, kv_heads=2, scale=0.1, perm=[0,1,2]>(x)"},
    {"AttentionPackedGrad",
     "y0: float[3,67,200] = onnx_fp8.AttentionPackedGrad<heads=4, kv_heads=2, "
     "scale=0.1, perm=[0,1,2]>(half, x, half, lse)"},
    {"CrossEntropyGrad",
     "y0: float[67,600] = onnx_fp8.CrossEntropyGrad<ignore_index=-100>"
     "(share, scores, row, labels)"},
    {"CrossEntropyWithGrad",
     "loss: float[], y0: float[67,600] = onnx_fp8.CrossEntropyWithGrad"
     "<ignore_index=-100>(share, scores, labels)"},
};

void PrintTo(const Producer& p, std::ostream* out) { *out << p.name; }

class MeasuredAmax : public testing::TestWithParam<Producer> {};

std::string TextOf(const Producer& p) {
  std::string text = kInputs + std::string(p.node) + "\n";
  for (int i = 0; i < p.results; ++i) {
    std::string n = std::to_string(i);
    std::string name = p.name, shape = "[3,67,200]";
    if (name.starts_with("CrossEntropy")) shape = "[67,600]";
    if (name == "AttentionPacked") shape = "[3,67,100]";
    text += "q" + n + ": float8e4m3fn" + shape + ", s" + n + ": float[], amax" +
            n + ": float[] = onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(y" +
            n + ")\noutput amax" + n + "\noutput y" + n + "\n";
  }
  return text;
}

// Random feeds; unless `strange` is 0, it is put somewhere into x and scores.
TensorMap Feeds(const Graph& graph, float strange) {
  TensorMap feeds = RandomFeeds(graph, {"lse", "row"});
  for (const char* name : {"x", "scores"}) {
    if (strange == 0) continue;
    Tensor& t = feeds.at(name);
    t.data<float>()[t.size() - 700] = strange;
  }
  return feeds;
}

// By the definition in graph/schemas/quantize.cc.
float AmaxOfAll(const Tensor& t) {
  float largest = 0;
  for (float x : t.values<float>()) {
    if (!std::isfinite(x)) return std::numeric_limits<float>::infinity();
    largest = std::max(largest, std::fabs(x));
  }
  return largest;
}

TEST_P(MeasuredAmax, IsThatOfAPassOverTheResult) {
  const Producer& p = GetParam();
  std::shared_ptr<Graph> graph = ParseGraph(TextOf(p));
  auto provider = MakeCpuProvider();
  Executor executor(graph, *provider);
  EXPECT_EQ(executor.plan().amaxes, static_cast<size_t>(p.results));
  for (float strange : {0.0f, 99.0f, -99.0f, std::nanf(""), INFINITY}) {
    for (int threads : {1, 2}) {
      SetNumThreads(threads);
      TensorMap state, feeds = Feeds(*graph, strange);
      TensorMap results = executor.Run(feeds, state);
      for (int i = 0; i < p.results; ++i) {
        std::string n = std::to_string(i);
        float expected = AmaxOfAll(results.at("y" + n));
        EXPECT_EQ(*results.at("amax" + n).data<float>(), expected)
            << "result " << i << " with " << strange;
        EXPECT_TRUE(expected > 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MeasuredAmax, testing::ValuesIn(kProducers),
                         [](const auto& info) { return info.param.name; });

// A result that its kernel does not measure needs a pass of its own.
TEST(MeasuredAmaxList, HasNoOtherResults) {
  std::shared_ptr<Graph> graph = ParseGraph(std::string(kInputs) + R"(
dx: float[3,67,200], ds: float[200] = onnx_fp8.RMSNormGrad<axis=2, epsilon=1e-05>(x, z, w)
q: float8e4m3fn[200], s: float[], amax: float[] = onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(ds)
output amax
output ds
)");
  auto provider = MakeCpuProvider();
  Executor executor(graph, *provider);
  EXPECT_EQ(executor.plan().amaxes, 0u);
  TensorMap state, results = executor.Run(Feeds(*graph, 0), state);
  EXPECT_EQ(*results.at("amax").data<float>(), AmaxOfAll(results.at("ds")));
}

// The list has all kernels that say that they measure.
TEST(MeasuredAmaxList, IsComplete) {
  std::set<std::string> measuring, tested;
  auto provider = MakeCpuProvider();
  for (const std::string& name : provider->Kernels().Names()) {
    size_t dot = name.find('.');
    bool ours = dot != std::string::npos;
    const KernelEntry* entry = provider->Kernels().Find(
        ours ? name.substr(0, dot) : "", ours ? name.substr(dot + 1) : name);
    if (entry && !entry->traits.measures.empty()) measuring.insert(name);
  }
  for (const Producer& p : kProducers) {
    auto graph = ParseGraph(TextOf(p));
    for (const Node& node : graph->nodes()) {
      if (node.op == "QuantizeTensor") continue;
      tested.insert(node.domain.empty() ? node.op
                                        : node.domain + "." + node.op);
    }
  }
  for (const char* same :
       {"onnx_fp8.AttentionBias", "onnx_fp8.AttentionBiasGrad",
        "onnx_fp8.AttentionRelative", "onnx_fp8.AttentionRelativeGrad",
        "onnx_fp8.AttentionPackedBias", "onnx_fp8.AttentionPackedBiasGrad",
        "onnx_fp8.AttentionSegments", "onnx_fp8.AttentionSegmentsGrad",
        "onnx_fp8.AttentionPackedSegments",
        "onnx_fp8.AttentionPackedSegmentsGrad"}) {
    tested.insert(same);  // the code of Attention
  }
  EXPECT_EQ(measuring, tested);
}

// Rounding to 16 bits makes a number infinite. The others keep their scale.
TEST(MeasuredAmaxIn16Bits, LeavesOutWhatOverflows) {
  for (auto [to, large] : {std::pair{"10", 300.0f}, {"16", 1.8435e19f}}) {
    std::shared_ptr<Graph> graph = ParseGraph(Concat(R"(graph "g" opset 24
input x: float[5]
y: float[5] = Mul(x, x)
r: float[5] = onnx_fp8.RoundTo<to=)",
                                                     to, R"(>(y)
q: float8e4m3fn[5], s: float[], a: float[] = onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(r)
output s
output a
)"));
    StoreNarrow(*graph, CpuKernels());
    auto provider = MakeCpuProvider();
    Executor executor(graph, *provider);
    EXPECT_EQ(executor.plan().amaxes, 1u);
    TensorMap state;
    TensorMap results = executor.Run(
        {{"x", Tensor::From<float>({5}, {1, large, 7, -2, -large})}}, state);
    EXPECT_EQ(*results.at("s").data<float>(), 1 / (448.0f / 49));
    EXPECT_EQ(*results.at("a").data<float>(), INFINITY);
  }
}

}  // namespace
}  // namespace onnx_fp8
