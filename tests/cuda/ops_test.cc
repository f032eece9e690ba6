// SPDX-License-Identifier: Apache-2.0
//
// Ops of all families on the GPU beside the CPU: sizes that are no multiple of
// a vector or a block, and ones larger than a block. A tolerance of 0 asks for
// the CPU's bits.
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "graph/builder.h"
#include "providers/cuda/cuda_provider.h"
#include "providers/passes/store_narrow.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

struct OpCase {
  const char* name;
  const char* text;
  double tolerance = 0;
};

void PrintTo(const OpCase& c, std::ostream* out) { *out << c.name; }

class CudaOpsTest : public testing::TestWithParam<OpCase> {};

TEST_P(CudaOpsTest, GivesTheCpusNumbers) {
  ExpectCpusResults(std::string("graph \"g\" opset 23\n") + GetParam().text,
                    GetParam().tolerance);
}

// What the kernels can keep in 16 bits lies there.
TEST_P(CudaOpsTest, GivesTheCpusNumbersIn16Bits) {
  ExpectCpusResultsIn16Bits(
      std::string("graph \"g\" opset 23\n") + GetParam().text,
      GetParam().tolerance);
}

const OpCase kOpCases[] = {
    // ---- element by element
    {"Functions", R"(input x: float[3,67,41]
const two: float[] = {2}
above: float[3,67,41] = Add(x, two)
y1: float[3,67,41] = Tan(x)
y2: float[3,67,41] = Asin(x)
y3: float[3,67,41] = Acos(x)
y4: float[3,67,41] = Atan(x)
y5: float[3,67,41] = Sinh(x)
y6: float[3,67,41] = Cosh(x)
y7: float[3,67,41] = Asinh(x)
y8: float[3,67,41] = Acosh(above)
y9: float[3,67,41] = Atanh(x)
)",
     1e-6},
    {"Exact", R"(input x: float[3,67,41]
const some: float[5] = {-2,0,3,-0.5,0.5}
const ints: int64[5] = {-2,0,3,9,-9}
const small: int32[5] = {-2,0,3,9,-9}
const bytes: uint8[5] = {0,1,127,128,255}
const low: float[] = {-0.25}
const high: float[] = {0.5}
const most: int64[] = {3}
y1: float[3,67,41] = Sign(x)
y2: float[5] = Sign(some)
y3: int64[5] = Sign(ints)
y4: int32[5] = Sign(small)
inverse: float[5] = Reciprocal(some)
y5: bool[5] = IsInf(inverse)
y6: bool[5] = IsInf<detect_positive=0>(inverse)
y7: int64[5] = BitwiseNot(ints)
y8: uint8[5] = BitwiseNot(bytes)
y9: float[3,67,41] = Clip(x, low, high)
y10: float[3,67,41] = Clip(x, low)
y11: int64[5] = Clip(ints, , most)
y12: float[3,67,41] = Shrink<bias=0.125, lambd=0.25>(x)
)"},
    {"Pairs", R"(input x: float[3,67,41]
input z: float[3,67,41]
input slope: float[67,1]
const ints: int64[6] = {-7,7,-7,7,0,9}
const others: int64[6] = {3,-3,-3,3,-1,-1}
const small: int32[6] = {-7,7,-7,7,0,9}
const small_others: int32[6] = {3,-3,-3,3,-1,-1}
const words: uint32[6] = {1,2,255,4294967295,7,9}
const shifts: uint32[6] = {0,31,32,5,40,1}
const cube: int64[] = {3}
y1: float[3,67,41] = PRelu(x, slope)
y2: float[3,67,41] = Mod<fmod=1>(x, z)
y3: int64[6] = Mod(ints, others)
y4: int64[6] = Mod<fmod=1>(ints, others)
y5: int32[6] = Mod(small, small_others)
y6: int64[6] = Div(ints, others)
y7: int32[6] = Div(small, small_others)
y8: int64[6] = BitwiseAnd(ints, others)
y9: int32[6] = BitwiseOr(small, small_others)
y10: int64[6] = BitwiseXor(ints, others)
y11: uint32[6] = BitShift<direction="LEFT">(words, shifts)
y12: uint32[6] = BitShift<direction="RIGHT">(words, shifts)
y13: float[3,67,41] = Mean(x, z, slope)
y14: float[3,67,41] = Pow(x, cube)
y15: float[3,67,41] = Mod(x, z)
y16: int32[6] = BitShift<direction="LEFT">(small, small_others)
y17: int32[6] = BitShift<direction="RIGHT">(small, small_others)
)"},
    // More vectors than a block has at once; a rest; operands that repeat in
    // the last axis, in others, and in all.
    {"PairsOfVectors", R"(input x: float[3,67,44]
input z: float[3,67,44]
input odd: float[5003]
input other: float[5003]
input bias: float[44]
input column: float[67,1]
input plane: float[3,1,44]
input scalar: float[]
y1: float[3,67,44] = Add(x, z)
y2: float[5003] = Sub(odd, other)
y3: float[3,67,44] = Add(x, bias)
y4: float[3,67,44] = Mul(column, x)
y5: float[3,67,44] = Sub(plane, x)
y6: float[5003] = Mul(scalar, odd)
y7: float[3,67,44] = Add(column, plane)
y8: float[5003] = Max(odd, scalar)
)"},
    {"CastsOfVectors", R"(input x: float[5003]
const hundred: float[] = {100}
large: float[5003] = Mul(x, hundred)
halves: float16[5003] = Cast<to=10>(large)
y1: float[5003] = Cast<to=1>(halves)
shorter: bfloat16[5003] = Cast<to=16>(large)
y2: float[5003] = Cast<to=1>(shorter)
y3: int64[5003] = Cast<to=7>(large)
y4: float[5003] = Cast<to=1>(y3)
y5: bool[5003] = Cast<to=9>(y3)
y6: int32[5003] = Cast<to=6>(y5)
y7: double[5003] = Cast<to=11>(x)
y8: float[5003] = onnx_fp8.RoundTo<to=16>(large)
y9: int32[5003] = BitCast<to=6>(x)
)"},
    // ---- reductions and scans
    {"Reductions", R"(input x: float[5,33,70]
input row: float[2,20001]
const one: float[] = {1}
const last: int64[1] = {-1}
const first: int64[1] = {0}
const ints: int32[2,3] = {1,2,3,4,5,6}
near: float[5,33,70] = Add(x, one)
y1: float[5,33,1] = ReduceProd(near, last)
y2: float[1,33,70] = ReduceProd(x, first)
y3: float[5,33,1] = ReduceLogSum(near, last)
y4: float[5,33,1] = ReduceLogSumExp(x, last)
y5: float[1,33,70] = ReduceLogSumExp(x, first)
y6: float[2,1] = ReduceLogSumExp(row, last)
y7: int32[2,1] = ReduceSum(ints, last)
y8: int32[1,3] = ReduceProd(ints, first)
)",
     4e-6},
    {"ReductionsOfColumns", R"(input tall: float[1100,132]
input odd: float[1100,131]
input few: float[5000,3]
input x: float[5,7,6,12]
input y: float[3,900,20]
const ints: int32[2,6] = {1,2,3,4,5,6,-7,8,9,-10,11,12}
const first: int64[1] = {0}
const middle: int64[1] = {1}
const both: int64[2] = {0,2}
y1: float[1,132] = ReduceSum(tall, first)
y2: float[131] = ReduceSum<keepdims=0>(odd, first)
y3: float[1,3] = ReduceSumSquare(few, first)
y4: float[1,7,1,12] = ReduceSum(x, both)
y5: float[3,1,20] = ReduceMean(y, middle)
y6: float[1,132] = ReduceMax(tall, first)
y7: float[1,131] = ReduceLogSumExp(odd, first)
y8: int32[1,6] = ReduceMin(ints, first)
)",
     4e-6},
    {"ReductionsOfRows", R"(input odd: float[70,333]
input even: float[70,332]
input long: float[3,40003]
input even_long: float[3,40004]
input x: float[5,7,6,12]
const last: int64[1] = {-1}
const both: int64[2] = {1,3}
y1: float[70,1] = ReduceSum(odd, last)
y2: float[70] = ReduceL1<keepdims=0>(even, last)
y3: float[3,1] = ReduceL2(long, last)
y4: float[3,1] = ReduceSum(even_long, last)
y5: float[5,1,6,1] = ReduceSum(x, both)
y6: float[] = ReduceSumSquare<keepdims=0>(long)
y7: float[70,1] = ReduceMin(even, last)
y8: float[1,1] = ReduceMax(odd)
)",
     4e-6},
    {"Scans", R"(input x: float[5,33,70]
input long: float[2,3001]
input wide: float[3,7,300]
const last: int64[] = {-1}
const middle: int64[] = {1}
const ints: int64[2,5] = {3,1,4,1,5,9,2,6,5,9}
const small: int32[2,5] = {3,1,4,1,5,9,2,6,5,9}
y1: float[5,33,70] = CumSum(x, middle)
y2: float[2,3001] = CumSum<exclusive=1>(long, last)
y3: float[5,33,70] = CumSum<reverse=1>(x, last)
y4: float[5,33,70] = CumSum<reverse=1, exclusive=1>(x, middle)
y5: int64[2,5] = CumSum(ints, last)
y6: int32[2,5] = CumSum(small, last)
y7: int64[5,1,70] = ArgMax<axis=1>(x)
y8: int64[2] = ArgMin<axis=-1, keepdims=0>(long)
y9: int64[2,1] = ArgMax<axis=-1>(ints)
y10: int64[2,1] = ArgMax<axis=-1, select_last_index=1>(ints)
y11: int64[2,1] = ArgMin<axis=-1, select_last_index=1>(small)
y12: float[5,33,70] = Hardmax(x)
y13: float[3,7,300] = Hardmax<axis=1>(wide)
y14: float[5,33,70] = CumProd(x, middle)
y15: int64[2,5] = CumProd<exclusive=1, reverse=1>(ints, last)
)"},
    {"NotANumber", R"(const zero: float[2,4] = {0,1,0,2,-1,0,3,0}
none: float[2,4] = Div(zero, zero)
const k: int64[1] = {3}
const last: int64[1] = {-1}
y1: int64[2,1] = ArgMax<axis=-1>(none)
y2: int64[2,1] = ArgMin<axis=-1>(none)
y3: int64[2,1] = ArgMin<axis=-1, select_last_index=1>(none)
v4: float[2,3], y4: int64[2,3] = TopK(none, k)
v5: float[2,3], y5: int64[2,3] = TopK<largest=0>(none, k)
y6: float[2,4] = Sign(none)
y7: float[2,1] = ReduceLogSumExp(none, last)
log: float[2,4] = Log(zero)
y8: float[2,1] = ReduceLogSumExp(log, last)
)",
     4e-6},
    // ---- positions
    {"Positions", R"(input x: float[5,33,70]
input scores: float[301,8]
input bits: bool[3,5,7]
const k: int64[1] = {9}
const two: int64[1] = {2}
const depth: int64[] = {5}
const ids: int64[2,3] = {0,4,-1,7,-6,2}
const small: int32[3] = {0,-5,2}
const values: float[2] = {-1,3}
const names: int64[2] = {7,9}
const diagonal: int64[] = {-3}
const ties: int64[2,5] = {3,1,3,1,3,9,9,9,2,9}
y1: float[5,33,9], p1: int64[5,33,9] = TopK(x, k)
y2: float[5,9,70], p2: int64[5,9,70] = TopK<axis=1, largest=0>(x, k)
y3: float[301,2], p3: int64[301,2] = TopK(scores, two)
y4: int64[2,2], p4: int64[2,2] = TopK(ties, two)
y5: float[2,3,5] = OneHot(ids, depth, values)
y6: int64[5,3] = OneHot<axis=0>(small, depth, names)
y7: float[5,33,70] = Trilu(x)
y8: float[5,33,70] = Trilu<upper=0>(x, diagonal)
y9: bool[3,5,7] = Trilu<upper=0>(bits)
)"},
    // ---- movement
    {"MovementOfUnits", R"(input x: float[6,40,48]
input odd: float[5,7,9]
input large: float[3,130,70]
input runs: float[42,35,4]
const bytes: bool[3,7,24]
const zero: float[] = {0}
const halves: int64[3] = {16,16,16}
const parts: int64[3] = {3,40,5}
const from: int64[2] = {1,8}
const to: int64[2] = {5,40}
const from_odd: int64[2] = {0,1}
const axes: int64[2] = {1,2}
const back: int64[2] = {-1,-1}
const start: int64[2] = {30,40}
const stop: int64[2] = {-100,-100}
const wide: int64[3] = {6,40,48}
s1: float[6,40,16], s2: float[6,40,16], s3: float[6,40,16] = Split<axis=2>(x, halves)
t1: float[6,40,3], t2: float[6,40,40], t3: float[6,40,5] = Split<axis=2>(x, parts)
c1: float[6,40,48] = Concat<axis=2>(s3, s1, s2)
c2: float[6,40,48] = Concat<axis=2>(t3, t2, t1)
c3: float[12,40,48] = Concat<axis=0>(x, c1)
c4: float[10,7,9] = Concat<axis=0>(odd, odd)
p1: float[40,6,48] = Transpose<perm=[1,0,2]>(x)
p2: float[48,40,6] = Transpose(x)
p3: bool[7,3,24] = Transpose<perm=[1,0,2]>(bytes)
p4: bool[24,7,3] = Transpose(bytes)
p5: float[6,48,40] = Transpose<perm=[0,2,1]>(x)
p6: float[3,70,130] = Transpose<perm=[0,2,1]>(large)
p7: float[70,3,130] = Transpose<perm=[2,0,1]>(large)
signs: bool[3,130,70] = Less(large, zero)
p8: bool[70,3,130] = Transpose<perm=[2,0,1]>(signs)
numbers: int64[3,130,70] = Cast<to=7>(signs)
p9: int64[3,70,130] = Transpose<perm=[0,2,1]>(numbers)
p10: float[35,42,4] = Transpose<perm=[1,0,2]>(runs)
l1: float[6,4,32] = Slice(x, from, to, axes)
l2: float[6,5,39] = Slice(x, from_odd, to, axes)
l3: float[6,31,41] = Slice(x, start, stop, axes, back)
)"},
    // ---- scatter and gather
    {"Gathers", R"(input x: float[7,45,4]
input w: float[40,12]
input dy: float[300,12]
input odd: float[2,300,3]
input row: float[4001,33]
input sizes: float[300]
input many: float[4001]
const ids: int64[2,3] = {0,4,-1,6,-7,2}
const few: int32[2] = {44,-45}
const small: int64[2,3] = {0,1,-1,3,-4,2}
const five: float[] = {4.99}
const two: float[] = {1.99}
scaled: float[300] = Mul(sizes, five)
places: int64[300] = Cast<to=7>(scaled)
often: float[4001] = Mul(many, two)
lists: int64[4001] = Cast<to=7>(often)
y1: float[2,3,45,4] = Gather(x, ids)
y2: float[7,2,4] = Gather<axis=1>(x, few)
y3: float[7,45,2,3] = Gather<axis=2>(x, small)
y4: float[9,12] = onnx_fp8.GatherGrad<axis=0, shape=[9,12]>(dy, places)
y5: float[2,9,3] = onnx_fp8.GatherGrad<axis=1, shape=[2,9,3]>(odd, places)
y6: float[5000,33] = onnx_fp8.GatherGrad<axis=0, shape=[5000,33]>(row, lists)
y7: float[300,12] = Gather(w, places)
)",
     4e-6},
    {"ScatterElements", R"(input x: float[7,45]
input u: float[3,45]
input v: float[7,4]
const rows: int64[3,45]
const columns: int64[7,4] = {44,0,44,1,5,5,5,5,-1,-45,0,3,2,1,0,9,8,7,6,5,1,1,2,2,40,41,40,41}
y1: float[7,45] = ScatterElements<reduction="add">(x, rows, u)
y2: float[7,45] = ScatterElements(x, rows, u)
y3: float[7,45] = ScatterElements<axis=1, reduction="add">(x, columns, v)
y4: float[7,45] = ScatterElements<axis=1, reduction="mul">(x, columns, v)
y5: float[7,45] = ScatterElements<axis=1, reduction="max">(x, columns, v)
y6: float[7,45] = ScatterElements<axis=1, reduction="min">(x, columns, v)
y7: float[7,45] = ScatterElements<axis=1>(x, columns, v)
y8: float[7,4] = GatherElements<axis=1>(x, columns)
)"},
    {"ScatterInLongLists", R"(input x: float[3]
input u: float[4001]
input sizes: float[4001]
const none: int64[] = {0}
const three: float[] = {2.99}
scaled: float[4001] = Mul(sizes, three)
places: int64[4001] = Cast<to=7>(scaled)
y1: float[3] = ScatterElements<reduction="add">(x, places, u)
y2: float[3] = ScatterElements(x, places, u)
)"},
    {"ScatterND", R"(input x: float[6,5,33]
input u: float[4,33]
input v: float[2,2]
input none: float[0,33]
const pairs: int64[4,2] = {0,4,5,-1,0,4,3,2}
const triples: int32[2,2,3] = {0,0,0,5,4,32,-1,-1,-1,2,1,7}
const empty: int64[0,2]
const flags: bool[3] = {1,0,1}
const other: bool[2] = {0,1}
const where: int64[2,1] = {2,1}
y1: float[6,5,33] = ScatterND(x, pairs, u)
y2: float[6,5,33] = ScatterND<reduction="add">(x, pairs, u)
y3: float[6,5,33] = ScatterND<reduction="mul">(x, triples, v)
y4: float[6,5,33] = ScatterND(x, empty, none)
y5: bool[3] = ScatterND(flags, where, other)
y6: float[4,33] = GatherND(x, pairs)
)"},
    // ---- windows of other kinds
    {"Pad", R"(input x: float[3,5,7]
const pads: int64[6] = {0,2,1,1,0,3}
const crops: int64[6] = {-1,2,-2,0,-1,3}
const two: int64[2] = {1,2}
const axis: int64[1] = {1}
const fill: float[] = {2.5}
const ints: int64[3] = {1,2,3}
y1: float[4,7,11] = Pad(x, pads)
y2: float[4,7,11] = Pad(x, pads, fill)
y3: float[4,7,11] = Pad<mode="edge">(x, pads)
y4: float[4,7,11] = Pad<mode="reflect">(x, pads)
y5: float[4,7,11] = Pad<mode="wrap">(x, pads)
y6: float[2,6,8] = Pad(x, crops, fill)
y7: float[3,8,7] = Pad(x, two, , axis)
y8: int64[6] = Pad<mode="reflect">(ints, two)
)"},
    {"Resize", R"(input x: float[2,3,7,9]
input few: float[1,1,2,3]
const one: int64[4] = {1,1,1,1}
const twice: float[4] = {1,1,2,2}
const odd: float[4] = {1,1,1.7,0.6}
const sizes: int64[4] = {2,3,5,20}
const same: int64[4] = {2,3,7,9}
const roi: float[8] = {0,0,-0.2,0.1,1,1,0.8,1.3}
const all: float[4] = {1.5,2,2,2}
const ints: int64[2] = {3,4}
const three: float[1] = {3}
y1: float[2,3,14,18] = Resize(x, , twice)
y2: float[2,3,11,5] = Resize<nearest_mode="floor", coordinate_transformation_mode="asymmetric">(x, , odd)
y3: float[2,3,14,18] = Resize<mode="linear">(x, , twice)
y4: float[2,3,11,5] = Resize<mode="linear", antialias=1>(x, , odd)
y5: float[2,3,5,20] = Resize<mode="cubic">(x, , , sizes)
y6: float[2,3,5,20] = Resize<mode="cubic", coordinate_transformation_mode="align_corners", exclude_outside=1>(x, , , sizes)
y7: float[2,3,7,9] = Resize<mode="linear">(x, , , same)
y8: float[2,3,14,18] = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=5.0>(x, roi, twice)
y9: float[3,6,14,18] = Resize<mode="linear">(x, , all)
y10: int64[6] = Resize(ints, , three)
y11: float[1,1,1,1] = Resize<mode="linear">(few, , , one)
)"},
    {"Einsum", R"(input a: float[5,7,33]
input b: float[5,33,9]
input w: float[33,9]
input v: float[33]
input s: float[6,6]
input t: float[33,7,5]
y1: float[5,7,9] = Einsum<equation="bij,bjk->bik">(a, b)
y2: float[9,7,5] = Einsum<equation="bij,bjk->kib">(a, b)
y3: float[5,7,9] = Einsum<equation="...j,jk->...k">(a, w)
y4: float[7,5,33] = Einsum<equation="bij,j->ibj">(a, v)
y5: float[] = Einsum<equation="ii->">(s)
y6: float[6] = Einsum<equation="ii->i">(s)
y7: float[5] = Einsum<equation="bij->b">(a)
y8: float[5,7] = Einsum<equation="bij,jk,j->bi">(a, w, v)
y9: float[5,7,9] = Einsum<equation="jib,bjk->bik">(t, b)
)",
     2e-6},
    // ---- norms of channels
    {"ChannelNorms", R"(input x: float[3,6,5,7]
input flat: float[301,6]
input large: float[2,2,20001]
input scale: float[6]
input bias: float[6]
input two: float[2]
input mean: float[6]
input spread: float[6]
const one: float[] = {1}
variance: float[6] = Add(spread, one)
y1: float[3,6,5,7] = BatchNormalization(x, scale, bias, mean, variance)
y2: float[3,6,5,7], m2: float[6], v2: float[6] = BatchNormalization<training_mode=1, momentum=0.75>(x, scale, bias, mean, variance)
y3: float[301,6], m3: float[6], v3: float[6] = BatchNormalization<training_mode=1>(flat, scale, bias, mean, variance)
y4: float[2,2,20001], m4: float[2], v4: float[2] = BatchNormalization<training_mode=1>(large, two, two, two, two)
y5: float[3,6,5,7] = InstanceNormalization(x, scale, bias)
y6: float[3,6,5,7] = GroupNormalization<num_groups=3>(x, scale, bias)
y7: float[2,2,20001] = GroupNormalization<num_groups=1>(large, two, two)
y8: float[3,6,5,7] = LpNormalization<axis=1, p=1>(x)
y9: float[301,6] = LpNormalization(flat)
y10: float[3,6,5,7] = LRN<size=3>(x)
y11: float[3,6,5,7] = LRN<size=4, alpha=0.5, beta=0.5, bias=2.0>(x)
)",
     2e-7},
};

INSTANTIATE_TEST_SUITE_P(All, CudaOpsTest, testing::ValuesIn(kOpCases),
                         [](const auto& info) { return info.param.name; });

// ---- random values

// Without a seed, masks depend on the name of the result if the node has none.
TEST(CudaRandomTest, DropsWhatTheCpuDropsIn16Bits) {
  ExpectCpusResultsIn16Bits(R"(graph "g" opset 22
input x: float[3,67,41]
const ratio: float[] = {0.3}
const yes: bool[] = {1}
y1: float[3,67,41], m1: bool[3,67,41] = Dropout<seed=7>(x, ratio, yes)
y2: float[3,67,41] = Dropout(x, ratio)
)",
                            0);
}

TEST(CudaRandomTest, DrawsWhatTheCpuDraws) {
  ExpectCpusResults(R"(graph "g" opset 22
input x: float[3,67,41]
const ratio: float[] = {0.3}
const none: float[] = {0}
const yes: bool[] = {1}
const three: float[] = {3}
chance: float[3,67,41] = Abs(x)
y1: float[3,67,41], m1: bool[3,67,41] = Dropout(x, ratio, yes)
y2: float[3,67,41], m2: bool[3,67,41] = Dropout<seed=7>(x, ratio, yes)
y3: float[3,67,41], m3: bool[3,67,41] = Dropout(x, none, yes)
y4: float[3,67,41], m4: bool[3,67,41] = Dropout(x, ratio)
y5: float[3,67,41], m5: bool[3,67,41] = Dropout(x, ratio, yes)
y6: float[9,41] = RandomUniform<shape=[9,41], low=-2.0, high=3.0>()
y7: float[3,67,41] = RandomUniformLike<seed=3.0>(x)
y8: float[3,67,41] = Bernoulli(chance)
y9: bool[3,67,41] = Bernoulli<dtype=9>(chance)
)",
                    0);
  ExpectCpusResults(R"(graph "g" opset 22
input x: float[3,67,41]
y1: float[9,41] = RandomNormal<shape=[9,41], mean=0.5, scale=2.0>()
y2: float[3,67,41] = RandomNormalLike(x)
)",
                    1e-6);
}

// ---- bad data

void ExpectErrorOnGpu(const std::string& nodes, const std::string& part) {
  std::string error = ErrorOnGpu("graph \"g\" opset 22\n" + nodes);
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(CudaOpsErrors, DivisorsAreNotZero) {
  ExpectErrorOnGpu(R"(input x: int64[5]
input z: int64[5]
y: int64[5] = Mod(x, z)
)",
                   "expected integer divisors that are not 0, got 0");
}

TEST(CudaOpsErrors, IndicesLieInside) {
  ExpectErrorOnGpu(R"(input x: float[5]
const at: int64[2] = {4,5}
input u: float[2]
y: float[5] = ScatterElements(x, at, u)
)",
                   "expected indices in -5…4, got 5");
}

}  // namespace
}  // namespace onnx_fp8
