// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/extreme_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <span>
#include <sstream>

#include "base/check.h"
#include "base/random.h"
#include "graph/infer_shapes.h"
#include "graph/passes/expand.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/expand_missing.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr float kLargestFloat = std::numeric_limits<float>::max();
constexpr float kLeast = std::numeric_limits<float>::denorm_min();
constexpr float kNormal = std::numeric_limits<float>::min();
constexpr float kWithoutEnd = std::numeric_limits<float>::infinity();
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

const char kSharedInputs[] = R"(graph "g" opset 24
input x: float[4,6]
input z: float[4,6]
input w: float[6]
input mean: float[4,1]
input share: float[]
input q: float[2,5,8]
input k: float[2,5,8]
input v: float[2,5,8]
input dy: float[2,5,8]
input qkv: float[2,5,24]
input mask: float[2,1,1,5]
input relative: float[2,9]
input angle: float[2,5,4]
input image: float[1,4,4,6]
input channel: float[4]
input top: float[]
input part: float[2,6]
input few: float[2]
input filter: float[2,4,3,3]
input filter_t: float[4,2,3,3]
const deviation: float[4,1] = {0.5,1,2,4}
const labels: int64[4] = {0,5,2,-100}
const classes: int64[4] = {0,5,2,1}
const ids: int64[3] = {2,0,3}
const places: int64[2,6] = {0,1,2,3,0,1,3,2,1,0,3,2}
const pairs: int64[2,2] = {0,1,3,5}
const one: int64[1] = {1}
const two: int64[1] = {2}
const zero: int64[1] = {0}
const axis1: int64[1] = {1}
const axis: int64[] = {1}
const number: int64[] = {1000}
const wide: int64[2] = {4,6}
const flat: int64[1] = {24}
const three: int64[3] = {2,4,6}
const pads: int64[4] = {1,0,0,2}
const segments: int32[2,5] = {0,0,1,1,1,4,5,5,5,6}
const lengths: int64[4] = {6,1,3,4}
const places4: int64[2,3] = {0,1,2,2,1,0}
const scales: float[4] = {1,1,2,1.5}
const grid: float[1,2,2,2] = {-0.5,0.25,0.9,-1.5,0,0,1,1}
const some: bool[4,6] = {1,0,1,0,0,1,0,0,0,1,1,1,0,0,0,0,0,0,1,1,1,1,1,1}
const scale: float[] = {0.5}
const step: float[] = {0}
)";

// $ stands for each of the ops in front of the colon.
struct Rows {
  const char* ops;
  const char* text;
};

const Rows kRows[] = {
    {"Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp "
     "Floor Gelu HardSigmoid HardSwish Hardmax LeakyRelu Log LogSoftmax "
     "LpNormalization Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign "
     "Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu "
     "IsInf IsNaN onnx_fp8.Silu",
     "y: ? = $(x)"},
    {"Add Sub Mul Div Max Min Mean Sum PRelu Equal Greater GreaterOrEqual Less "
     "LessOrEqual onnx_fp8.GeluGrad onnx_fp8.GeluTanhGrad onnx_fp8.SiluGrad "
     "onnx_fp8.SwiGLU",
     "y: ? = $(x, z)"},
    {"Pow", "y: ? = Pow(x, z)"},
    {"Mod", "y: ? = Mod<fmod=1>(x, z)"},
    {"onnx_fp8.GeluBiasGrad onnx_fp8.GeluTanhBiasGrad onnx_fp8.SiluBiasGrad",
     "y: ?, b: ? = $(x, z)"},
    {"onnx_fp8.SwiGLUGrad", "y: ?, y1: ? = onnx_fp8.SwiGLUGrad(x, z, x)"},
    {"Where", "y: ? = Where(some, x, z)"},
    {"Clip", "y: ? = Clip(x, share, top)"},
    {"onnx_fp8.SoftmaxGrad", "y: ? = onnx_fp8.SoftmaxGrad<axis=1>(x, z)"},
    {"ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
     "ReduceMin ReduceProd ReduceSum ReduceSumSquare",
     "y: ? = $(x, axis1)"},
    {"ArgMax ArgMin", "y: ? = $<axis=1>(x)"},
    {"CumSum", "y: ? = CumSum(x, axis)"},
    {"TopK", "y: ?, i: ? = TopK(x, two)"},
    {"LayerNormalization", "y: ?, m: ?, s: ? = LayerNormalization(x, w, w)"},
    {"RMSNormalization", "y: ? = RMSNormalization(x, w)"},
    {"onnx_fp8.RMSNorm",
     "y: ? = onnx_fp8.RMSNorm<axis=-1, epsilon=1e-05>(x, w)"},
    {"onnx_fp8.AddRMSNorm",
     "t: ?, y: ? = onnx_fp8.AddRMSNorm<axis=-1, epsilon=1e-05>(x, z, w)"},
    {"onnx_fp8.AddLayerNorm",
     "t: ?, y: ?, m: ?, s: ? = onnx_fp8.AddLayerNorm<axis=-1, epsilon=1e-05>"
     "(x, z, w, w)"},
    {"onnx_fp8.LayerNormGrad",
     "y: ?, a: ?, b: ? = onnx_fp8.LayerNormGrad<axis=1>"
     "(x, z, w, mean, deviation)"},
    {"onnx_fp8.AddLayerNormGrad",
     "y: ?, a: ?, b: ? = onnx_fp8.AddLayerNormGrad<axis=1>"
     "(z, x, z, w, mean, deviation)"},
    {"onnx_fp8.RMSNormGrad",
     "y: ?, a: ? = onnx_fp8.RMSNormGrad<axis=1, epsilon=1e-05>(x, z, w)"},
    {"onnx_fp8.AddRMSNormGrad",
     "y: ?, a: ? = onnx_fp8.AddRMSNormGrad<axis=1, epsilon=1e-05>(z, x, z, w)"},
    {"BatchNormalization",
     "u: ? = Abs(channel)\n"
     "y: ? = BatchNormalization(image, channel, channel, channel, u)"},
    {"InstanceNormalization",
     "y: ? = InstanceNormalization(image, channel, channel)"},
    {"GroupNormalization",
     "y: ? = GroupNormalization<num_groups=2>(image, channel, channel)"},
    {"MeanVarianceNormalization", "y: ? = MeanVarianceNormalization(image)"},
    {"LRN", "y: ? = LRN<size=3>(image)"},
    {"onnx_fp8.Attention",
     "y: ?, l: ? = onnx_fp8.Attention<heads=2, kv_heads=2, scale=0.5, causal=1,"
     " round_to=1>(q, k, v)"},
    {"onnx_fp8.AttentionBias",
     "y: ?, l: ? = onnx_fp8.AttentionBias<heads=2, kv_heads=2, scale=0.5, "
     "causal=0, round_to=1>(q, k, v, mask)"},
    {"onnx_fp8.AttentionBias",
     "y: ?, l: ? = onnx_fp8.AttentionBias<heads=2, kv_heads=2, scale=0.5, "
     "causal=1, round_to=1>(q, k, v, mask)"},
    {"onnx_fp8.AttentionRelative",
     "y: ?, l: ? = onnx_fp8.AttentionRelative<heads=2, kv_heads=2, scale=0.5, "
     "causal=0, round_to=1>(q, k, v, relative, mask)"},
    {"onnx_fp8.AttentionPacked",
     "y: ?, l: ? = onnx_fp8.AttentionPacked<heads=2, kv_heads=2, scale=0.5, "
     "causal=0, round_to=1, perm=[0,1,2]>(qkv)"},
    {"onnx_fp8.AttentionPackedBias",
     "y: ?, l: ? = onnx_fp8.AttentionPackedBias<heads=2, kv_heads=2, scale=0.5,"
     " causal=1, round_to=1, perm=[0,1,2]>(qkv, mask)"},
    {"onnx_fp8.AttentionSegments",
     "y: ?, l: ? = onnx_fp8.AttentionSegments<heads=2, kv_heads=2, scale=0.5, "
     "causal=1, round_to=1>(q, k, v, mask, segments)"},
    {"onnx_fp8.AttentionPackedSegments",
     "y: ?, l: ? = onnx_fp8.AttentionPackedSegments<heads=2, kv_heads=2, "
     "scale=0.5, causal=0, round_to=1, perm=[0,1,2]>(qkv, mask, segments)"},
    {"onnx_fp8.AttentionGrad",
     "y: ?, l: ? = onnx_fp8.Attention<heads=2, kv_heads=2, scale=0.5, causal=1,"
     " round_to=1>(q, k, v)\n"
     "a: ?, b: ?, c: ? = onnx_fp8.AttentionGrad<heads=2, kv_heads=2, scale=0.5,"
     " causal=1, round_to=1>(dy, q, k, v, y, l)"},
    {"onnx_fp8.AttentionBiasGrad",
     "y: ?, l: ? = onnx_fp8.AttentionBias<heads=2, kv_heads=2, scale=0.5, "
     "causal=1, round_to=1>(q, k, v, mask)\n"
     "a: ?, b: ?, c: ? = onnx_fp8.AttentionBiasGrad<heads=2, kv_heads=2, "
     "scale=0.5, causal=1, round_to=1>(dy, q, k, v, mask, y, l)"},
    {"onnx_fp8.AttentionRelativeGrad",
     "y: ?, l: ? = onnx_fp8.AttentionRelative<heads=2, kv_heads=2, scale=0.5, "
     "causal=0, round_to=1>(q, k, v, relative, mask)\n"
     "a: ?, b: ?, c: ?, d: ? = onnx_fp8.AttentionRelativeGrad<heads=2, "
     "kv_heads=2, scale=0.5, causal=0, round_to=1>"
     "(dy, q, k, v, relative, mask, y, l)"},
    {"onnx_fp8.AttentionPackedGrad",
     "y: ?, l: ? = onnx_fp8.AttentionPacked<heads=2, kv_heads=2, scale=0.5, "
     "causal=1, round_to=1, perm=[0,1,2]>(qkv)\n"
     "a: ? = onnx_fp8.AttentionPackedGrad<heads=2, kv_heads=2, scale=0.5, "
     "causal=1, round_to=1, perm=[0,1,2]>(dy, qkv, y, l)"},
    {"onnx_fp8.AttentionPackedBiasGrad",
     "y: ?, l: ? = onnx_fp8.AttentionPackedBias<heads=2, kv_heads=2, scale=0.5,"
     " causal=0, round_to=1, perm=[0,1,2]>(qkv, mask)\n"
     "a: ? = onnx_fp8.AttentionPackedBiasGrad<heads=2, kv_heads=2, scale=0.5, "
     "causal=0, round_to=1, perm=[0,1,2]>(dy, qkv, mask, y, l)"},
    {"onnx_fp8.AttentionSegmentsGrad",
     "y: ?, l: ? = onnx_fp8.AttentionSegments<heads=2, kv_heads=2, scale=0.5, "
     "causal=1, round_to=1>(q, k, v, mask, segments)\n"
     "a: ?, b: ?, c: ? = onnx_fp8.AttentionSegmentsGrad<heads=2, kv_heads=2, "
     "scale=0.5, causal=1, round_to=1>(dy, q, k, v, mask, segments, y, l)"},
    {"onnx_fp8.AttentionPackedSegmentsGrad",
     "y: ?, l: ? = onnx_fp8.AttentionPackedSegments<heads=2, kv_heads=2, "
     "scale=0.5, causal=0, round_to=1, perm=[0,1,2]>(qkv, mask, segments)\n"
     "a: ? = onnx_fp8.AttentionPackedSegmentsGrad<heads=2, kv_heads=2, "
     "scale=0.5, causal=0, round_to=1, perm=[0,1,2]>"
     "(dy, qkv, mask, segments, y, l)"},
    {"onnx_fp8.Rotary onnx_fp8.RotaryGrad",
     "y: ? = $<heads=2>(q, angle, angle)"},
    {"onnx_fp8.CrossEntropy",
     "y: ?, l: ? = onnx_fp8.CrossEntropy<ignore_index=-100>(x, labels)"},
    {"onnx_fp8.CrossEntropyGrad",
     "y: ?, l: ? = onnx_fp8.CrossEntropy<ignore_index=-100>(x, labels)\n"
     "d: ? = onnx_fp8.CrossEntropyGrad<ignore_index=-100>"
     "(share, x, l, labels)"},
    {"onnx_fp8.CrossEntropyWithGrad",
     "y: ?, d: ? = onnx_fp8.CrossEntropyWithGrad<ignore_index=-100>"
     "(share, x, labels)"},
    {"SoftmaxCrossEntropyLoss",
     "y: ?, l: ? = SoftmaxCrossEntropyLoss<ignore_index=-100>(x, labels)"},
    {"onnx_fp8.SoftmaxCrossEntropyGrad",
     "y: ? = onnx_fp8.SoftmaxCrossEntropyGrad<ignore_index=-100>"
     "(share, x, labels)"},
    {"NegativeLogLikelihoodLoss",
     "y: ? = NegativeLogLikelihoodLoss(x, classes, w)"},
    {"MatMul", "t: ? = Transpose<perm=[1,0]>(z)\ny: ? = MatMul(x, t)"},
    {"Gemm", "y: ? = Gemm<transB=1, alpha=0.5>(x, z, channel)"},
    {"Einsum", "y: ? = Einsum<equation=\"ij,kj->ik\">(x, z)"},
    {"Conv", "y: ? = Conv<pads=[1,1,1,1]>(image, filter)"},
    {"ConvTranspose", "y: ? = ConvTranspose(image, filter_t)"},
    {"AveragePool MaxPool LpPool", "y: ? = $<kernel_shape=[2,2]>(image)"},
    {"GlobalAveragePool GlobalMaxPool", "y: ? = $(image)"},
    {"Resize", "y: ? = Resize<mode=\"linear\">(image, , scales)"},
    {"GridSample", "y: ? = GridSample(image, grid)"},
    {"onnx_fp8.Amax", "y: ? = onnx_fp8.Amax(x)"},
    {"onnx_fp8.RoundTo", "y: ? = onnx_fp8.RoundTo<to=16>(x)"},
    {"onnx_fp8.RoundStochastic",
     "y: ? = onnx_fp8.RoundStochastic<begin=3, row=4, shift=5, stream=7, "
     "stride=9>(x, axis, number)"},
    {"onnx_fp8.EncodeMaster",
     "h: ?, c: ? = onnx_fp8.EncodeMaster<correction=3>(x)"},
    {"onnx_fp8.DecodeMaster",
     "h: ?, c: ? = onnx_fp8.EncodeMaster<correction=5>(x)\n"
     "y: ? = onnx_fp8.DecodeMaster<correction=5>(h, c)"},
    {"onnx_fp8.QuantizeTensor",
     "c: ?, y: ?, a: ? = onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(x)"},
    {"onnx_fp8.QuantizeWith",
     "c: ?, y: ?, a: ? = onnx_fp8.QuantizeWith<to=19, q_max=57344.0>"
     "(x, scale)"},
    {"onnx_fp8.QuantizeAmax",
     "m: ? = onnx_fp8.Amax(x)\n"
     "c: ?, y: ? = onnx_fp8.QuantizeAmax<to=17, q_max=448.0>(x, m, scale)"},
    {"onnx_fp8.QuantizeBlock",
     "c: ?, y: ?, a: ? = onnx_fp8.QuantizeBlock<to=17, scale_to=1, pow2=0, "
     "q_max=448.0, block_rows=1, block_columns=3>(x)"},
    {"onnx_fp8.DequantizeBlock",
     "c: ?, s: ?, a: ? = onnx_fp8.QuantizeBlock<to=17, scale_to=1, pow2=0, "
     "q_max=448.0, block_rows=1, block_columns=3>(x)\n"
     "y: ? = onnx_fp8.DequantizeBlock<to=1, block_rows=1, block_columns=3>"
     "(c, s)"},
    {"Cast", "y: ? = Cast<to=10>(x)"},
    {"CastLike", "h: ? = Cast<to=16>(z)\ny: ? = CastLike(x, h)"},
    {"Dropout", "y: ? = Dropout(x)"},
    {"Identity Shape Size", "y: ? = $(x)"},
    {"Concat", "y: ? = Concat<axis=1>(x, z)"},
    {"Expand", "y: ? = Expand(w, three)"},
    {"Flatten", "y: ? = Flatten(image)"},
    {"Gather", "y: ? = Gather(x, ids)"},
    {"GatherElements", "y: ? = GatherElements(x, places)"},
    {"GatherND", "y: ? = GatherND(x, pairs)"},
    {"onnx_fp8.GatherGrad",
     "p: ? = Gather(x, ids)\n"
     "y: ? = onnx_fp8.GatherGrad<axis=0, shape=[4,6]>(p, ids)"},
    {"Pad", "y: ? = Pad(x, pads, share)"},
    {"Reshape", "y: ? = Reshape(x, flat)"},
    {"ReverseSequence",
     "y: ? = ReverseSequence<batch_axis=0, time_axis=1>(x, lengths)"},
    {"ScatterElements",
     "y: ? = ScatterElements<reduction=\"add\">(x, places, part)"},
    {"ScatterND", "y: ? = ScatterND<reduction=\"max\">(x, pairs, few)"},
    {"Slice", "y: ? = Slice(x, one, two, axis1)"},
    {"Split", "y: ?, y1: ? = Split<axis=1, num_outputs=2>(x)"},
    {"Squeeze", "y: ? = Squeeze(image, zero)"},
    {"Tile", "y: ? = Tile(x, wide)"},
    {"Transpose", "y: ? = Transpose<perm=[1,0]>(x)"},
    {"Trilu", "y: ? = Trilu(x)"},
    {"Unsqueeze", "y: ? = Unsqueeze(x, zero)"},
    {"ConstantOfShape", "y: ? = ConstantOfShape(wide)"},
    {"EyeLike", "y: ? = EyeLike(x)"},
    {"onnx_fp8.AllReduce",
     "y: ? = onnx_fp8.AllReduce<group=\"dp\", ranks=1, reduction=\"sum\">(x)"},
    {"onnx_fp8.AllGather onnx_fp8.ReduceScatter",
     "y: ? = $<group=\"dp\", ranks=1>(x)"},
    {"onnx_fp8.Detach", "y: ? = onnx_fp8.Detach(x)"},
    {"onnx_fp8.Broadcast",
     "y: ? = onnx_fp8.Broadcast<group=\"dp\", ranks=1, root=0>(x)"},
};

// Why a kernel has no case; a * stands for any end of its name.
const Rows kReasons[] = {
    {"And Or Xor Not BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor",
     "it has no floats"},
    {"Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
     "its results are random"},
    {"Constant Range Compress Unique NonZero",
     "its results' sizes or values are those of attributes and of other ops"},
    {"ConvInteger MatMulInteger QLinearConv QLinearMatMul QuantizeLinear "
     "DequantizeLinear DynamicQuantizeLinear",
     "it computes codes of integers: tests/python/test_integer_ops.py"},
    {"GRU LSTM RNN", "training unrolls it into ops that have cases"},
    {"onnx_fp8.Adam onnx_fp8.AdamW onnx_fp8.SGD onnx_fp8.SGDMomentum "
     "onnx_fp8.UpdateScale",
     "a step that is not finite is skipped: tests/optimizers"},
    {"onnx_fp8.UpdateAmax",
     "its second operand is positive: "
     "tests/providers/cpu/ops/update_amax_test.cc"},
    {"onnx_fp8.DecodeMoment onnx_fp8.EncodeMoment "
     "onnx_fp8.EncodeSecondMoment",
     "its codes belong to matrices: "
     "tests/providers/cpu/ops/moment_codes_test.cc"},
    {"onnx_fp8.CastStatistics onnx_fp8.ProductStatistics",
     "they count numbers that are not finite: "
     "tests/providers/cpu/fp8/cast_statistics_test.cc"},
    {"onnx_fp8.ScaledMatMul*",
     "the codes of its operands are finite numbers of 8 bits: "
     "tests/providers/cpu/fp8"},
    {"onnx_fp8.*Quantize onnx_fp8.*QuantizePadded onnx_fp8.*QuantizeRows "
     "onnx_fp8.*Transpose onnx_fp8.*Padded onnx_fp8.QuantizeColumns",
     "the kernel is that of an op with a case, followed by a quantizer"},
    {"CumProd Col2Im GlobalLpPool RoiAlign",
     "it has no body, and sums or products that may overflow in any order: "
     "ONNX's node cases"},
    {"BitCast DepthToSpace OneHot Scatter SpaceToDepth",
     "it moves elements, as others with a case do"},
};

// Why the body says nothing in double.
const Rows kOnlyFloats[] = {
    {"onnx_fp8.Amax onnx_fp8.Quantize* onnx_fp8.DequantizeBlock "
     "onnx_fp8.RoundStochastic onnx_fp8.EncodeMaster onnx_fp8.DecodeMaster",
     "the op has floats of 32 bits"},
    {"Celu MeanVarianceNormalization",
     "the body in ONNX's schema has constants of 32 bits"},
};

// Why the kernel's double form is right beside the body.
const Rows kOverflowingBodies[] = {
    {"Softplus ReduceL2 ReduceLogSumExp",
     "powers of the body overflow; the "
     "kernel's result does not, as PyTorch's"},
    {"LayerNormalization RMSNormalization GroupNormalization "
     "MeanVarianceNormalization",
     "squares of the body overflow in 32 bits; the kernel has doubles"},
};

std::vector<std::string> WordsOf(const char* text) {
  std::istringstream words(text);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

bool Matches(const std::string& pattern, const std::string& name) {
  size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name;
  std::string begin = pattern.substr(0, star), end = pattern.substr(star + 1);
  return name.size() >= begin.size() + end.size() && name.starts_with(begin) &&
         name.ends_with(end);
}

std::string ReasonOf(std::span<const Rows> list, const std::string& name) {
  for (const Rows& row : list) {
    for (const std::string& pattern : WordsOf(row.ops)) {
      if (Matches(pattern, name)) return row.text;
    }
  }
  return "";
}

// Feeds that a case leaves out.
struct LeftOut {
  const char *ops, *kinds, *reason;
};

const LeftOut kLeftOut[] = {
    {"Mean AveragePool MatMul Gemm Einsum Conv ConvTranspose",
     "large lowest all_lowest all_largest",
     "sums of floats overflow, depending on the order of their terms"},
    {"Shrink ThresholdedRelu", "nan",
     "NaN falls through, as in PyTorch; the body gives 0"},
    {"onnx_fp8.AttentionBiasGrad", "hidden",
     "NaN of a row that sees nothing reaches the keys before it alone, not all "
     "keys as in the body"},
    {"onnx_fp8.AttentionSegmentsGrad onnx_fp8.AttentionPackedSegmentsGrad",
     "large infinite hidden nan",
     "NaN of one segment stays in it; in the body its product with a "
     "probability of 0 reaches all keys"},
};

std::vector<ExtremeCase> MakeCases() {
  std::vector<ExtremeCase> cases;
  for (const Rows& row : kRows) {
    for (const std::string& op : WordsOf(row.ops)) {
      std::string text = row.text;
      for (size_t at; (at = text.find('$')) != std::string::npos;) {
        text.replace(at, 1, op);
      }
      cases.push_back({op, text});
    }
  }
  return cases;
}

bool IsLeftOut(const std::string& op, const std::string& kind) {
  for (const LeftOut& row : kLeftOut) {
    auto ops = WordsOf(row.ops), kinds = WordsOf(row.kinds);
    if (std::ranges::count(ops, op) > 0 &&
        std::ranges::count(kinds, kind) > 0) {
      return true;
    }
  }
  return false;
}

// Numbers that a feed takes in turn.
using Numbers = std::vector<float>;

const std::map<std::string, Numbers>& Kinds() {
  static const std::map<std::string, Numbers> kinds = {
      {"small",
       {0, -0.0f, kLeast, -kLeast, kNormal, -kNormal, 1e-40f, 1, -1, 0.5f,
        -1e-30f}},
      {"large",
       {kLargestFloat, -kLargestFloat, 1e30f, -1e30f, 1e19f, -1e19f, 0, 1, -2,
        1e9f, -1e9f}},
      {"infinite", {kWithoutEnd, 1, -1, -kWithoutEnd, 0, 2, 3, -0.5f, 1}},
      {"hidden", {-kWithoutEnd, 1, -1, -kWithoutEnd, 0, 2, -kWithoutEnd, 1}},
      {"lowest",
       {-kLargestFloat, 1, -1, -kLargestFloat, 0, 2, -kLargestFloat, 1, 0.5f,
        -0.25f}},
      {"nan", {kNoNumber, 1, -1, 0.5f, 2}},
      {"all_zero", {0}},
      {"all_lowest", {-kLargestFloat}},
      {"all_largest", {kLargestFloat}},
      {"all_hidden", {-kWithoutEnd}},
      {"modest", {1, -1, 0.5f, 2, -0.25f, 0, 3}},
  };
  return kinds;
}

Tensor Fill(const Shape& shape, const Numbers& numbers, uint64_t seed) {
  Tensor t = Tensor::Zeros(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] =
        numbers[RandomBelow(seed, static_cast<uint64_t>(i), numbers.size())];
  }
  return t;
}

bool Close(double a, double b, double bound) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= bound;
}

double LargestOf(const Tensor& x) {
  double largest = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    double v = std::fabs(DoubleAt(x, i));
    if (std::isfinite(v)) largest = std::max(largest, v);
  }
  return largest;
}

}  // namespace

void PrintTo(const ExtremeCase& c, std::ostream* out) { *out << c.op; }

const std::vector<ExtremeCase>& ExtremeCases() {
  static const std::vector<ExtremeCase> cases = MakeCases();
  return cases;
}

std::map<std::string, std::string> WithoutExtremeCase(
    const KernelRegistry& kernels) {
  std::map<std::string, std::string> without;
  for (const std::string& name : kernels.Names()) {
    bool found = std::ranges::any_of(
        ExtremeCases(), [&](const ExtremeCase& c) { return c.op == name; });
    if (found) continue;
    without[name] = ReasonOf(kReasons, name);
  }
  return without;
}

std::shared_ptr<Graph> GraphOf(const ExtremeCase& c, DType dtype) {
  std::istringstream lines(kSharedInputs + c.text);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    size_t at = line.find(": float[");
    if (dtype == DType::kDouble && line.starts_with("input ")) {
      line.replace(at, 7, ": double");
    }
    text += line + "\n";
  }
  std::shared_ptr<Graph> graph = ParseGraph(text);
  for (Node& node : graph->nodes()) {
    InferNode(node, graph->opset);
    for (Value* y : node.outputs()) graph->outputs.push_back(y);
  }
  return graph;
}

std::vector<std::shared_ptr<Graph>> TruthsOf(const ExtremeCase& c) {
  size_t dot = c.op.find('.');
  Graph scratch;
  scratch.opset = 24;
  bool body = HasBody(*scratch.AddNode(
      dot == std::string::npos ? c.op : c.op.substr(dot + 1), {}, {"y"}, {},
      dot == std::string::npos ? "" : c.op.substr(0, dot)));
  std::vector<std::shared_ptr<Graph>> truths;
  auto evaluator = MakeCpuEvaluator();
  if (body) {
    truths.push_back(GraphOf(c, DType::kFloat));
    ExpandMissing(*truths.back(), CpuKernels(), {c.op}, evaluator.get());
  }
  bool wide = ReasonOf(kOnlyFloats, c.op).empty();
  if (wide) {
    truths.push_back(GraphOf(c, DType::kDouble));
    if (body) {
      ExpandMissing(*truths.back(), CpuKernels(), {c.op}, evaluator.get());
    }
  }
  if (!ReasonOf(kOverflowingBodies, c.op).empty()) {
    truths.push_back(GraphOf(c, DType::kDouble));
  }
  return truths;
}

std::string NameOfExtreme(const ExtremeCase& c, size_t index) {
  return c.op.substr(c.op.find('.') + 1) + "_" + std::to_string(index);
}

std::map<std::string, TensorMap> ExtremeFeeds(const ExtremeCase& c,
                                              const Graph& graph) {
  std::map<std::string, TensorMap> feeds;
  for (const auto& [kind, numbers] : Kinds()) {
    if (IsLeftOut(c.op, kind)) continue;
    uint64_t seed = 1;
    // The mask, and all that it does not hide, or all numbers.
    TensorMap &masked = feeds["mask_of_" + kind], &all = feeds[kind];
    for (const Value* input : graph.inputs) {
      bool hides = input->name == "mask" || input->name == "z";
      if (input->name == "share") {  // a loss has a gradient of modest size
        all[input->name] = masked[input->name] = Tensor::Scalar(0.5f);
        continue;
      }
      all[input->name] = Fill(*input->shape, numbers, ++seed);
      masked[input->name] =
          Fill(*input->shape, hides ? numbers : Kinds().at("modest"), ++seed);
    }
  }
  return feeds;
}

std::string DifferenceFromAll(const TensorMap& got,
                              const std::vector<TensorMap>& truths,
                              double relative) {
  for (const auto& [name, tensor] : got) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      double a = DoubleAt(tensor, i);
      std::string expected;
      bool found = false;
      for (const TensorMap& truth : truths) {
        const Tensor& want = truth.at(name);
        if (want.shape() != tensor.shape()) return name + ": another shape";
        double b = DoubleAt(ConvertTo(want, tensor.dtype()), i);
        found |= Close(a, b, relative * LargestOf(want));
        expected += (expected.empty() ? "" : " or ") + Concat(b);
      }
      if (!found) {
        return Concat(name, "[", i, "]: expected ", expected, ", got ", a);
      }
    }
  }
  return "";
}

}  // namespace onnx_fp8
