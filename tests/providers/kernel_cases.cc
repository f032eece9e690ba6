// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/kernel_cases.h"

#include <algorithm>
#include <ostream>
#include <string>

#include "graph/builder.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// Sizes that are no multiple of a vector, a block or a tile, and larger than a
// task.
const char kInputs[] = R"(graph "g" opset 24
input x: float[3,67,200]
input z: float[3,67,200]
input w: float[200]
input cos: float[1,67,50]
input mean: float[3,67,1]
input lse: float[3,4,67]
input half: float[3,67,100]
input bias: float[1,4,67,67]
input a: float[67,131]
input b: float[131,45]
input bt: float[45,131]
input c: float[67,45]
input row: float[45]
input rows: float[67]
input long: float[2,3001]
input long_row: float[3001]
input labels: int64[67]
const share: float[] = {1}
const scale: float[] = {0.5}
const one: int64[1] = {1}
const ids: int64[3] = {2,0,2}
const sizes: int64[3] = {3,67,200}
const twice: int64[2] = {2,1}
const from: int64[1] = {5}
const to: int64[1] = {60}
)";

// Every kernel with these traits, all operands that it may read in 16 bits.
const KernelCase kCases[] = {
    {"Add", "y: float[3,67,200] = Add(x, z)"},
    {"AddRow", "y: float[3,67,200] = Add(x, w)"},
    {"AddLong", "y: float[2,3001] = Add(long, long)"},
    {"AddColumn", "y: float[3,67,200] = Add(mean, z)"},
    {"Sub", "y: float[3,67,200] = Sub(x, z)"},
    {"SubScalar", "y: float[3,67,200] = Sub(scale, z)"},
    {"Mul", "y: float[3,67,200] = Mul(x, z)"},
    {"Div", "y: float[3,67,200] = Div(x, z)"},
    {"DivColumn", "y: float[3,67,200] = Div(x, mean)"},
    {"Where",
     "mask: bool[3,67,200] = Less(mean, w)\n"
     "y: float[3,67,200] = Where(mask, x, z)"},
    {"WhereRow",
     "mask: bool[3,67,1] = Less(mean, scale)\n"
     "y: float[3,67,200] = Where(mask, x, w)"},
    {"WhereScalar",
     "mask: bool[3001] = Less(long_row, scale)\n"
     "y: float[2,3001] = Where(mask, long, scale)"},
    {"Softmax", "y: float[3,67,200] = Softmax<axis=-1>(x)"},
    {"SoftmaxOfColumns", "y: float[3,67,200] = Softmax<axis=1>(x)"},
    {"LogSoftmax", "y: float[3,67,200] = LogSoftmax<axis=-1>(x)"},
    {"SoftmaxGrad", "y: float[3,67,200] = onnx_fp8.SoftmaxGrad<axis=-1>(x, z)"},
    {"SoftmaxGradOfColumns",
     "y: float[3,67,200] = onnx_fp8.SoftmaxGrad<axis=0>(x, z)"},
    {"Gelu", "y: float[3,67,200] = Gelu(x)"},
    {"GeluTanh", "y: float[3,67,200] = Gelu<approximate=\"tanh\">(x)"},
    {"GeluGrad", "y: float[3,67,200] = onnx_fp8.GeluGrad(x, z)"},
    {"GeluTanhGrad", "y: float[3,67,200] = onnx_fp8.GeluTanhGrad(x, z)"},
    {"GeluBiasGrad",
     "y: float[3,67,200], y1: float[200] = onnx_fp8.GeluBiasGrad(x, z)"},
    {"GeluTanhBiasGrad",
     "y: float[3,67,200], y1: float[200] = onnx_fp8.GeluTanhBiasGrad(x, z)"},
    {"SiluBiasGrad",
     "y: float[2,3001], y1: float[3001] = onnx_fp8.SiluBiasGrad(long, long)"},
    {"Silu", "y: float[3,67,200] = onnx_fp8.Silu(x)"},
    {"SiluGrad", "y: float[3,67,200] = onnx_fp8.SiluGrad(x, z)"},
    {"SwiGLU", "y: float[3,67,200] = onnx_fp8.SwiGLU(x, z)"},
    {"SwiGLUGrad",
     "y: float[3,67,200], y1: float[3,67,200] = onnx_fp8.SwiGLUGrad(x, z, x)"},
    {"Relu", "y: float[3,67,200] = Relu(x)"},
    {"LeakyRelu", "y: float[3,67,200] = LeakyRelu(x)"},
    {"ThresholdedRelu", "y: float[3,67,200] = ThresholdedRelu<alpha=0.1>(x)"},
    {"HardSigmoid", "y: float[3,67,200] = HardSigmoid(x)"},
    {"HardSwish", "y: float[3,67,200] = HardSwish(x)"},
    {"Elu", "y: float[3,67,200] = Elu(x)"},
    {"Selu", "y: float[3,67,200] = Selu(x)"},
    {"Celu", "y: float[3,67,200] = Celu(x)"},
    {"Sigmoid", "y: float[3,67,200] = Sigmoid(x)"},
    {"Tanh", "y: float[3,67,200] = Tanh(x)"},
    {"Swish", "y: float[3,67,200] = Swish(x)"},
    {"Softplus", "y: float[3,67,200] = Softplus(x)"},
    {"Softsign", "y: float[3,67,200] = Softsign(x)"},
    {"Mish", "y: float[3,67,200] = Mish(x)"},
    {"Sqrt", "y: float[3,67,200] = Sqrt(x)"},
    {"Reciprocal", "y: float[3,67,200] = Reciprocal(x)"},
    {"Floor", "y: float[3,67,200] = Floor(x)"},
    {"Ceil", "y: float[3,67,200] = Ceil(x)"},
    {"Round", "y: float[3,67,200] = Round(x)"},
    {"Exp", "y: float[3,67,200] = Exp(x)"},
    {"Log", "y: float[3,67,200] = Log(x)"},
    {"Erf", "y: float[3,67,200] = Erf(x)"},
    {"LayerNormalization",
     "y: float[3,67,200] = LayerNormalization<axis=-1>(x, w)"},
    {"RMSNormalization",
     "y: float[3,67,200] = RMSNormalization<axis=-1>(x, w)"},
    {"RMSNorm",
     "y: float[3,67,200] = onnx_fp8.RMSNorm<axis=-1, epsilon=1e-05>(x, w)"},
    {"AddLayerNorm",
     "y: float[3,67,200], y1: float[3,67,200], y2: float[3,67,1], "
     "y3: float[3,67,1] = onnx_fp8.AddLayerNorm<axis=-1, epsilon=1e-05>"
     "(x, z, w, w)"},
    {"AddRMSNorm",
     "y: float[3,67,200], y1: float[3,67,200] = "
     "onnx_fp8.AddRMSNorm<axis=-1, epsilon=1e-05>(x, z, w)"},
    {"AddLayerNormGrad",
     "y: float[3,67,200], y1: float[200], y2: float[200] = "
     "onnx_fp8.AddLayerNormGrad<axis=2>(z, x, z, w, mean, mean)"},
    {"AddRMSNormGrad",
     "y: float[3,67,200], y1: float[200] = "
     "onnx_fp8.AddRMSNormGrad<axis=2, epsilon=1e-05>(z, x, z, w)"},
    {"LayerNormGrad",
     "y: float[3,67,200], y1: float[200], y2: float[200] = "
     "onnx_fp8.LayerNormGrad<axis=2>(x, z, w, mean, mean)"},
    {"RMSNormGrad",
     "y: float[3,67,200], y1: float[200] = "
     "onnx_fp8.RMSNormGrad<axis=2, epsilon=1e-05>(x, z, w)"},
    {"Rotary", "y: float[3,67,200] = onnx_fp8.Rotary<heads=4>(x, cos, cos)"},
    {"RotaryGrad",
     "y: float[3,67,200] = onnx_fp8.RotaryGrad<heads=4>(x, cos, cos)"},
    {"Attention",
     "y: float[3,67,200], y1: float[3,4,67] = onnx_fp8.Attention<heads=4, "
     "kv_heads=4, scale=0.1, causal=1>(x, z, x)"},
    {"AttentionRounded",
     "y: float[3,67,200], y1: float[3,4,67] = onnx_fp8.Attention<heads=4, "
     "kv_heads=4, scale=0.1, causal=1, round_to=16>(x, z, x)"},
    {"AttentionBias",
     "y: float[3,67,200], y1: float[3,4,67] = onnx_fp8.AttentionBias<heads=4, "
     "kv_heads=4, scale=0.1>(x, z, x, bias)"},
    {"AttentionGrad",
     "y: float[3,67,200], y1: float[3,67,200], y2: float[3,67,200] = "
     "onnx_fp8.AttentionGrad<heads=4, kv_heads=4, scale=0.1, causal=1>"
     "(z, x, z, x, z, lse)"},
    {"AttentionRelative",
     "y: float[3,67,200], y1: float[3,4,67] = onnx_fp8.AttentionRelative<"
     "heads=4, kv_heads=4, scale=0.1>(x, z, x, distances, bias)"},
    {"AttentionRelativeGrad",
     "y: float[3,67,200], y1: float[3,67,200], y2: float[3,67,200], "
     "y3: float[4,133] = onnx_fp8.AttentionRelativeGrad<heads=4, kv_heads=4, "
     "scale=0.1>(z, x, z, x, distances, bias, z, lse)"},
    {"AttentionGradRounded",
     "y: float[3,67,200], y1: float[3,67,200], y2: float[3,67,200] = "
     "onnx_fp8.AttentionGrad<heads=4, kv_heads=4, scale=0.1, causal=1, "
     "round_to=16>(z, x, z, x, z, lse)"},
    {"AttentionBiasGrad",
     "y: float[3,67,200], y1: float[3,67,200], y2: float[3,67,200] = "
     "onnx_fp8.AttentionBiasGrad<heads=4, kv_heads=4, scale=0.1>"
     "(z, x, z, x, bias, z, lse)"},
    {"AttentionPacked",
     "y: float[3,67,100], y1: float[67,4,3] = onnx_fp8.AttentionPacked<"
     "heads=4, kv_heads=2, scale=0.1, perm=[1,0,2]>(x)"},
    {"AttentionPackedBias",
     "y: float[3,67,100], y1: float[3,4,67] = onnx_fp8.AttentionPackedBias<"
     "heads=4, kv_heads=2, scale=0.1, perm=[0,1,2]>(x, bias)"},
    {"AttentionPackedGrad",
     "y: float[3,67,200] = onnx_fp8.AttentionPackedGrad<heads=4, kv_heads=2, "
     "scale=0.1, causal=1, round_to=16, perm=[0,1,2]>(half, x, half, lse)"},
    {"AttentionPackedBiasGrad",
     "y: float[3,67,200] = onnx_fp8.AttentionPackedBiasGrad<heads=4, "
     "kv_heads=2, scale=0.1, perm=[0,1,2]>(half, x, bias, half, lse)"},
    {"AttentionSegments",
     "tokens: float[3,67] = Squeeze(mean, last)\n"
     "segments: int32[3,67] = Cast<to=6>(tokens)\n"
     "y: float[3,67,200], y1: float[3,4,67] = onnx_fp8.AttentionSegments<"
     "heads=4, kv_heads=4, scale=0.1, causal=1>(x, z, x, bias, segments)"},
    {"AttentionSegmentsGrad",
     "tokens: float[3,67] = Squeeze(mean, last)\n"
     "segments: int32[3,67] = Cast<to=6>(tokens)\n"
     "y: float[3,67,200], y1: float[3,67,200], y2: float[3,67,200] = "
     "onnx_fp8.AttentionSegmentsGrad<heads=4, kv_heads=4, scale=0.1>"
     "(z, x, z, x, bias, segments, z, lse)"},
    {"AttentionPackedSegments",
     "tokens: float[3,67] = Squeeze(mean, last)\n"
     "segments: int32[3,67] = Cast<to=6>(tokens)\n"
     "y: float[3,67,100], y1: float[3,4,67] = "
     "onnx_fp8.AttentionPackedSegments<heads=4, kv_heads=2, scale=0.1, "
     "perm=[0,1,2]>(x, bias, segments)"},
    {"AttentionPackedSegmentsGrad",
     "tokens: float[3,67] = Squeeze(mean, last)\n"
     "segments: int32[3,67] = Cast<to=6>(tokens)\n"
     "y: float[3,67,200] = onnx_fp8.AttentionPackedSegmentsGrad<heads=4, "
     "kv_heads=2, scale=0.1, perm=[0,1,2]>"
     "(half, x, bias, segments, half, lse)"},
    {"CrossEntropy",
     "y: float[], y1: float[67] = "
     "onnx_fp8.CrossEntropy<ignore_index=-100>(a, labels)"},
    {"CrossEntropyGrad",
     "y: float[67,131] = onnx_fp8.CrossEntropyGrad<ignore_index=-100>"
     "(share, a, rows, labels)"},
    {"CrossEntropyWithGrad",
     "y: float[], y1: float[67,131] = onnx_fp8.CrossEntropyWithGrad"
     "<ignore_index=-100>(share, a, labels)"},
    {"MatMul", "y: float[67,45] = MatMul(a, b)"},
    {"MatMulDeep", "y: float[3,67,67] = MatMul(x, xt)"},
    {"Gemm", "y: float[67,45] = Gemm<transB=1>(a, bt, row)"},
    {"GemmMatrix", "y: float[67,45] = Gemm<alpha=0.5, beta=0.25>(a, b, c)"},
    {"QuantizeTensor",
     "q: float8e4m3fn[3,67,200], y: float[], y1: float[] = "
     "onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(x)\n"
     "y2: float[3,67,200] = Cast<to=1>(q)"},
    {"QuantizeWith",
     "q: float8e5m2[3,67,200], y: float[], y1: float[] = "
     "onnx_fp8.QuantizeWith<to=19, q_max=57344.0>(x, scale)\n"
     "y2: float[3,67,200] = Cast<to=1>(q)"},
    {"QuantizeAmax",
     "amax: float[] = onnx_fp8.Amax(x)\n"
     "q: float8e5m2[3,67,200], y: float[] = "
     "onnx_fp8.QuantizeAmax<to=19, q_max=57344.0>(x, amax, scale)\n"
     "y2: float[3,67,200] = Cast<to=1>(q)"},
    {"QuantizeBlock",
     "q: float8e4m3fn[67,131], y: float[34,9], y1: float[] = "
     "onnx_fp8.QuantizeBlock<to=17, scale_to=1, pow2=0, q_max=448.0, "
     "block_rows=2, block_columns=16>(a)\n"
     "y2: float[67,131] = Cast<to=1>(q)"},
    {"ScaledMatMul",
     "qa: float8e4m3fn[67,131] = Cast<to=17>(a)\n"
     "qb: float8e4m3fn[131,45] = Cast<to=17>(b)\n"
     "y: float[67,45] = onnx_fp8.ScaledMatMul(qa, scale, qb, scale)"},
    {"ScaledMatMulBias",
     "qa: float8e4m3fn[67,131] = Cast<to=17>(a)\n"
     "qb: float8e4m3fn[131,45] = Cast<to=17>(b)\n"
     "y: float[67,45] = onnx_fp8.ScaledMatMulBias(qa, scale, qb, scale, row)"},
    {"ScaledMatMulBlock",
     "qa: float8e4m3fn[67,131], sa: float[67,5], ma: float[] = "
     "onnx_fp8.QuantizeBlock<to=17, scale_to=1, pow2=0, q_max=448.0, "
     "block_rows=1, block_columns=32>(a)\n"
     "qb: float8e4m3fn[131,45], sb: float[5,45], mb: float[] = "
     "onnx_fp8.QuantizeBlock<to=17, scale_to=1, pow2=0, q_max=448.0, "
     "block_rows=32, block_columns=1>(b)\n"
     "y: float[67,45] = onnx_fp8.ScaledMatMulBlock<a_block_rows=1, "
     "a_block_columns=32, b_block_rows=32, b_block_columns=1>(qa, sa, qb, sb)"},
    {"ScaledMatMulBlockBias",
     "qa: float8e4m3fn[67,131], sa: float[67,1], ma: float[] = "
     "onnx_fp8.QuantizeBlock<to=17, scale_to=1, pow2=0, q_max=448.0, "
     "block_rows=1, block_columns=0>(a)\n"
     "qb: float8e4m3fn[131,45], sb: float[1,45], mb: float[] = "
     "onnx_fp8.QuantizeBlock<to=17, scale_to=1, pow2=0, q_max=448.0, "
     "block_rows=0, block_columns=1>(b)\n"
     "y: float[67,45] = onnx_fp8.ScaledMatMulBlockBias<a_block_rows=1, "
     "a_block_columns=0, b_block_rows=0, b_block_columns=1>"
     "(qa, sa, qb, sb, row)"},
    {"ReduceSum", "y: float[1,67,200] = ReduceSum(x, first)"},
    {"ReduceSumOfRows", "y: float[3,67,1] = ReduceSum(x, last)"},
    {"RoundTo", "y: float[3,67,200] = onnx_fp8.RoundTo<to=16>(x)"},
    {"Transpose", "y: float[200,3,67] = Transpose<perm=[2,0,1]>(x)"},
    {"DepthToSpace", "y: float[1,1,8,12] = DepthToSpace<blocksize=2>(image)"},
    {"SpaceToDepth", "y: float[1,16,2,3] = SpaceToDepth<blocksize=2>(image)"},
    {"ReverseSequence",
     "y: float[3,67,200] = ReverseSequence<batch_axis=0, time_axis=1>"
     "(x, lengths)"},
    {"Concat", "y: float[6,67,200] = Concat<axis=0>(x, z)"},
    {"Split",
     "y: float[3,67,100], y1: float[3,67,100] = "
     "Split<axis=2, num_outputs=2>(x)"},
    {"Slice", "y: float[3,55,200] = Slice(x, from, to, one)"},
    {"Expand", "y: float[3,67,200] = Expand(w, sizes)"},
    {"Tile", "y: float[134,131] = Tile(a, twice)"},
    {"Gather", "y: float[3,131] = Gather(a, ids)"},
    {"GatherElements", "y: float[1,3] = GatherElements(a, places)"},
    {"GatherND", "y: float[3] = GatherND(a, pairs)"},
    {"AllGather",
     "y: float[3,67,200] = onnx_fp8.AllGather<group=\"dp\", ranks=1>(x)"},
};

const char kMoreInputs[] = R"(const first: int64[1] = {0}
const last: int64[1] = {2}
const lengths: int64[3] = {67,5,30}
const places: int64[1,3] = {1,0,66}
const pairs: int64[3,2] = {1,0,66,130,5,7}
input xt: float[3,200,67]
input image: float[1,4,4,6]
input distances: float[4,133]
)";

}  // namespace

void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.name; }

std::span<const KernelCase> KernelCases() { return kCases; }

std::shared_ptr<Graph> GraphOf(const KernelCase& c) {
  auto graph = ParseGraph(std::string(kInputs) + kMoreInputs + c.node + "\n");
  for (Node& node : graph->nodes()) {
    for (Value* y : node.outputs()) {
      if (y->uses.empty()) graph->outputs.push_back(y);
    }
  }
  return graph;
}

std::shared_ptr<Graph> RoundedGraph(const KernelCase& c, DType dtype,
                                    const KernelRegistry& kernels) {
  std::shared_ptr<Graph> graph =
      ParseGraph(std::string(kInputs) + kMoreInputs + c.node + "\n");
  std::vector<Node*> nodes;
  for (Node& node : graph->nodes()) nodes.push_back(&node);
  auto to = static_cast<int64_t>(dtype);
  for (Node* node : nodes) {
    const KernelTraits& traits = kernels.Find(node->domain, node->op)->traits;
    auto may = [&](const std::vector<size_t>& list, size_t i) {
      return traits.moves || std::ranges::count(list, i) > 0;
    };
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      Value* x = node->in(i);
      if (!x || x->dtype != DType::kFloat || !may(traits.narrow_in, i)) {
        continue;
      }
      Builder b(*graph, "in" + std::to_string(i) + ".", node);
      graph->SetInput(node, i, b.Ours("RoundTo", {x}, {{"to", to}}));
    }
    Builder b(*graph, "out.");
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      Value* y = node->out(i);
      if (y->dtype != DType::kFloat) continue;
      if (may(traits.narrow_out, i)) {
        if (!traits.moves) y = b.Ours("RoundTo", {y}, {{"to", to}});
        graph->outputs.push_back(b.Ops("QuantizeTensor", {y}, 3,
                                       {{"to", int64_t{17}}, {"q_max", 448.0f}},
                                       kDomain)[2]);
        y = b.Mul(y, graph->Find("share"));
      }
      graph->outputs.push_back(y);
    }
  }
  return graph;
}

}  // namespace onnx_fp8
