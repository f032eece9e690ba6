// SPDX-License-Identifier: Apache-2.0
//
// Many nodes of one op, on tensors of many sizes, and more than one launch
// takes: each gives the bits that it gives alone, in memory of its own, and few
// kernels start.
#include <gtest/gtest.h>

#include "base/check.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/ops/divide_up.h"
#include "providers/run/executor.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/graph/parse.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

constexpr int kNodes = 120;

// In `node`, {R} and {C} are the sizes of the matrices x#, g#, m# and v#, {R16}
// and {C16} their multiples of 16.
struct OneOfMany {
  const char* name;
  const char* node;
  int64_t launches;  // of kNodes nodes
  // Take turns as every third node.
  std::vector<const char*> others = {};
};

void PrintTo(const OneOfMany& c, std::ostream* out) { *out << c.name; }

std::string Replaced(std::string text, const std::string& from,
                     const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos;) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
  return text;
}

// The i-th node, with its inputs and outputs.
std::string NodeText(const OneOfMany& c, int i) {
  int rows = 4 * (1 + i * 3 % 7), columns = 4 * (1 + i * 5 % 11);
  if (i % 40 == 3) rows = 132, columns = 260;
  std::string text;
  for (const char* input : {"x#", "g#", "m#", "v#"}) {
    text += Concat("input ", input, ": float[{R},{C}]\n");
  }
  const auto third = static_cast<size_t>(i / 3);
  const bool is_other = i % 3 == 2 && !c.others.empty();
  text += Concat(is_other ? c.others[third % c.others.size()] : c.node, "\n");
  text = Replaced(text, "{W}", Concat("weight_decay=0.", i % 3));
  text = Replaced(text, "{K}", std::to_string(i % 3));
  text = Replaced(text, "{R16}", std::to_string(RoundUp(rows, 16)));
  text = Replaced(text, "{C16}", std::to_string(RoundUp(columns, 16)));
  text = Replaced(text, "{R}", std::to_string(rows));
  text = Replaced(text, "{C}", std::to_string(columns));
  return Replaced(text, "#", std::to_string(i));
}

std::shared_ptr<Graph> GraphOfNodes(const OneOfMany& c, int first, int count) {
  std::string text = R"(
const step: int64[] = {3}
const lr: float[] = {0.125}
const clip: float[] = {0.75}
const ok: bool[] = {1}
const seed: int64[] = {5}
const scale: float[3] = {0, 0.01, 0.002}
)";
  for (int i = first; i < first + count; ++i) text += NodeText(c, i);
  std::shared_ptr<Graph> graph = ParseGraph(text);
  for (Node& node : graph->nodes()) {
    for (Value* y : node.outputs()) {
      if (y) graph->outputs.push_back(y);
    }
  }
  return graph;
}

// Of all inputs, also those that RandomFeeds leaves zero.
TensorMap FeedsOfMany(const Graph& graph) {
  TensorMap feeds = RandomFeeds(graph, {});
  uint64_t seed = 1000;
  for (const Value* input : graph.inputs) {
    if (input->dtype == DType::kFloat) continue;
    feeds[input->name] = RandomCodes(input->dtype, *input->shape, ++seed);
  }
  return feeds;
}

class CudaManyTest : public testing::TestWithParam<OneOfMany> {};

TEST_P(CudaManyTest, GiveTheBitsOfEachAlone) {
  auto cuda = MakeCudaProvider();
  auto all = GraphOfNodes(GetParam(), 0, kNodes);
  TensorMap feeds = FeedsOfMany(*all), state;
  Executor together(all, *cuda);
  CheckPlan(together.plan(), *all, cuda->Kernels());
  emulation::ResetCounts();
  TensorMap got = together.Run(feeds, state);
  EXPECT_LE(emulation::Calls("cudaLaunchKernel"), GetParam().launches);
  for (int i = 0; i < kNodes; ++i) {
    auto one = GraphOfNodes(GetParam(), i, 1);
    Executor alone(one, *cuda);
    TensorMap own;
    for (const Value* input : one->inputs) {
      own[input->name] = feeds.at(input->name);
    }
    for (const auto& [name, want] : alone.Run(own, state)) {
      EXPECT_TRUE(Identical(cuda->ToHost(got.at(name)), cuda->ToHost(want)))
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaManyTest,
    testing::Values(
        OneOfMany{"QuantizeTensor",
                  "q#: float8e4m3fn[{R},{C}], s#: float[], a#: float[] = "
                  "onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(x#)",
                  8},
        OneOfMany{"QuantizeTensorTranspose",
                  "q#: float8e5m2[{R},{C}], s#: float[], a#: float[], "
                  "t#: float8e5m2[{C},{R}] = onnx_fp8.QuantizeTensorTranspose"
                  "<to=19, q_max=57344.0>(x#)",
                  8},
        OneOfMany{"QuantizeTensorTransposeAndSums",
                  "q#: float8e5m2[{R},{C}], s#: float[], a#: float[], "
                  "t#: float8e5m2[{C},{R}], c#: float[{C}] = "
                  "onnx_fp8.QuantizeTensorTranspose<to=19, q_max=57344.0>(x#)",
                  8 + kNodes},  // each adds up the parts of its sums
        OneOfMany{"QuantizeTensorPadded",
                  "q#: float8e4m3fn[{R16},{C16}], s#: float[], a#: float[], "
                  "t#: float8e4m3fn[{C16},{R16}] = "
                  "onnx_fp8.QuantizeTensorPadded<to=17, q_max=448.0>(x#)",
                  8},
        OneOfMany{"QuantizeWithTranspose",
                  "const k#: int64[] = {{K}}\n"
                  "w#: float[] = Gather<axis=0>(scale, k#)\n"
                  "q#: float8e4m3fn[{R},{C}], s#: float[], a#: float[], "
                  "t#: float8e4m3fn[{C},{R}] = onnx_fp8.QuantizeWithTranspose"
                  "<to=17, q_max=448.0>(x#, w#)",
                  15},
        OneOfMany{"QuantizeBlockOfRows",
                  "q#: float8e4m3fn[{R},{C}], s#: float[{R},1], a#: float[] = "
                  "onnx_fp8.QuantizeBlock<to=17, q_max=448.0, block_rows=1, "
                  "block_columns=0, pow2=1, scale_to=1>(x#)",
                  15},
        OneOfMany{"QuantizeBlockOfColumns",
                  "q#: float8e5m2[{R},{C}], s#: float8e8m0[1,{C}], a#: float[] "
                  "= onnx_fp8.QuantizeBlock<to=19, q_max=57344.0, block_rows=0,"
                  " block_columns=1, pow2=2, scale_to=24>(x#)",
                  15},
        OneOfMany{"QuantizeColumns",
                  "q#: float8e5m2[{C},{R}], s#: float8e8m0[{C},1], a#: float[] "
                  "= onnx_fp8.QuantizeColumns<to=19, q_max=57344.0, "
                  "block_rows=1, block_columns=0, pow2=2, scale_to=24>(x#)",
                  15},
        OneOfMany{"QuantizeBlockTranspose",
                  "q#: float8e5m2[{R},{C}], s#: float8e8m0[{R},1], a#: float[],"
                  " t#: float8e5m2[{C},{R}], u#: float8e8m0[{C},1] = "
                  "onnx_fp8.QuantizeBlockTranspose<to=19, q_max=57344.0, "
                  "block_rows=1, block_columns=0, pow2=2, scale_to=24>(x#)",
                  35},  // its descriptions are twice as long
        // One kernel clears all factors.
        OneOfMany{"QuantizeBlockOfElements",
                  "q#: float8e4m3fn[{R},{C}], s#: float[{R},{C}], a#: float[] "
                  "= onnx_fp8.QuantizeBlock<to=17, q_max=448.0, block_rows=1, "
                  "block_columns=1, pow2=0, scale_to=1>(x#)",
                  19},
        OneOfMany{"AdamW",
                  "p#: float[{R},{C}], n#: float[{R},{C}], u#: float[{R},{C}] "
                  "= onnx_fp8.AdamW<eps=0.1, lr_scale=0.5, {W}, "
                  "one_minus_beta1=0.125, one_minus_beta2=0.25>"
                  "(x#, g#, m#, v#, step, lr, clip, ok)",
                  6},
        OneOfMany{"AdamWOfBFloat16",
                  "input h#: bfloat16[{R},{C}]\n"
                  "input k#: bfloat16[{R},{C}]\n"
                  "p#: float[{R},{C}], n#: bfloat16[{R},{C}], "
                  "u#: bfloat16[{R},{C}] "
                  "= onnx_fp8.AdamW<eps=0.1, lr_scale=0.5, {W}, "
                  "one_minus_beta1=0.125, one_minus_beta2=0.25, begin={K}, "
                  "row=2, shift=3, stream=1{K}, stride=1{K}>"
                  "(x#, g#, h#, k#, step, lr, clip, ok, seed, step)",
                  6},
        OneOfMany{"AdamWOfMasters",
                  "input w#: bfloat16[{R},{C}]\n"
                  "input c#: int8[{R},{C}]\n"
                  "p#: bfloat16[{R},{C}], n#: float[{R},{C}], "
                  "u#: float[{R},{C}], d#: int8[{R},{C}] "
                  "= onnx_fp8.AdamW<correction=3, eps=0.1, lr_scale=0.5, {W}, "
                  "one_minus_beta1=0.125, one_minus_beta2=0.25>"
                  "(w#, g#, m#, v#, step, lr, clip, ok, c#)",
                  6},
        // Only neighbors with the same correction share launches: two by two.
        OneOfMany{"AdamWOfMixedMasters",
                  "input w#: bfloat16[{R},{C}]\n"
                  "input c#: int8[{R},{C}]\n"
                  "p#: bfloat16[{R},{C}], n#: float[{R},{C}], "
                  "u#: float[{R},{C}], d#: int8[{R},{C}] "
                  "= onnx_fp8.AdamW<correction=3, eps=0.1, lr_scale=0.5, {W}, "
                  "one_minus_beta1=0.125, one_minus_beta2=0.25>"
                  "(w#, g#, m#, v#, step, lr, clip, ok, c#)",
                  2 * (kNodes / 3 + kNodes / 3),
                  {"input w#: bfloat16[{R},{C}]\n"
                   "input c#: int16[{R},{C}]\n"
                   "p#: bfloat16[{R},{C}], n#: float[{R},{C}], "
                   "u#: float[{R},{C}], d#: int16[{R},{C}] "
                   "= onnx_fp8.AdamW<correction=5, eps=0.1, lr_scale=0.5, "
                   "{W}, one_minus_beta1=0.125, one_minus_beta2=0.25>"
                   "(w#, g#, m#, v#, step, lr, clip, ok, c#)",
                   "input w#: bfloat16[{R},{C}]\n"
                   "p#: bfloat16[{R},{C}], n#: float[{R},{C}], "
                   "u#: float[{R},{C}] "
                   "= onnx_fp8.AdamW<begin={K}, eps=0.1, lr_scale=0.5, {W}, "
                   "master_stream=1{K}, one_minus_beta1=0.125, "
                   "one_minus_beta2=0.25, row=2, shift=3, stride=1{K}>"
                   "(w#, g#, m#, v#, step, lr, clip, ok, seed, step)"}},
        OneOfMany{"SGDWithCodes",
                  "const k#: int64[] = {{K}}\n"
                  "w#: float[] = Gather<axis=0>(scale, k#)\n"
                  "p#: float[{R},{C}], q#: float8e4m3fn[{R},{C}], s#: float[], "
                  "a#: float[] = onnx_fp8.SGD<lr_scale=0.5, {W}, to=17, "
                  "q_max=448.0, round_to=1>(x#, g#, lr, clip, ok, w#)",
                  15},
        OneOfMany{"SGDMomentum",
                  "p#: float[{R},{C}], n#: float[{R},{C}] = "
                  "onnx_fp8.SGDMomentum<momentum=0.5, nesterov=1, lr_scale=0.5,"
                  " {W}>(x#, g#, m#, lr, clip, ok)",
                  6},
        OneOfMany{"ReduceSumSquare",
                  "y#: float[] = ReduceSumSquare<keepdims=0>(x#)", 4}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace onnx_fp8
