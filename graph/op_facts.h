// SPDX-License-Identifier: Apache-2.0
// Facts of ops, for passes and reports. Each op has one row: an op of ONNX in
// op_facts.cc, our own op beside its schema. A row that lacks a column of
// OpFacts does not compile, and no kernel or gradient is registered for an op
// without a row. A provider says how a kernel uses memory and measures amaxes
// when it registers the kernel (KernelTraits).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "graph/flops.h"
#include "graph/graph.h"

namespace onnx_fp8 {

enum class OpKind {
  kOther,
  kProduct,        // product of float matrices: FP8 may replace it
  kScaledProduct,  // product of FP8 matrices
  kAttention,
  kAttentionGrad,
  kQuantize,    // float to FP8
  kDequantize,  // FP8 to float
  kRound,       // float to the floats that a narrower format holds
  kScaleUpdate,
  kParameterUpdate,
  kNorm,        // normalization, or its gradient
  kCollective,  // all ranks of a group run it together
  kRandom,      // draws numbers
  kChoice,      // operand 0 says which of operands 1 and 2 each result is
  kSequence,    // reads or makes sequences of tensors
};

// Which elements of its operands an element of a result is computed from.
enum class OpForm {
  kAny,          // none of the forms below
  kElementwise,  // one of each operand; axes are aligned at the end
  kCopy,         // one, and it is the same
  kConvert,      // one, in another format
  kReshape,      // the same elements in the same order under another shape
  kTranspose,
  kSlice,
  kSplit,
  kConcat,
  kExpand,
  kGather,
  kReduce,     // all along the axes that operand 1 lists
  kAlongAxis,  // all along the attribute `axis`
  kTrailing,   // all along the axes from the attribute `axis` on
  kBatch,      // all of a sample, which is an index of axis 0
  kMatMul,
  kGemm,
  kHeads,    // all of a head; heads lie side by side on the last axis
  kRotated,  // one head's elements of a token; operands 1 and 2 are tables
  kClasses,  // all; operand 0 is (rows, classes), operand 1 the labels
};

// What PyTorch's autocast does with the op, see graph/passes/autocast.h. An op
// that runs in float returns floats.
enum class Precision {
  kFollows,        // rounds results if its operands are rounded
  kFollowsFirst,   // rounds results if operand 0 is rounded
  kKeeps,          // results are elements of operands but for the sign
  kFloat,          // runs in float
  kNarrowProduct,  // runs in 16 bits: operands 0, 1 and, in bfloat16, 2
  kNarrowFirst,    // runs in 16 bits: operand 0
  kNarrowThree,    // runs in 16 bits: operands 0, 1 and 2
  kNarrowAll,      // runs in 16 bits: all operands
};

// What a float constant is that meets data at the op, see
// graph/passes/parameter_rule.h.
enum class ConstantUse {
  kWeight,     // a weight in arithmetic
  kMatrix,     // the weight of a layer, beside numbers of integer inputs too
  kScale,      // scale or bias of a normalization, or the slope of a PRelu
  kNotOne,     // a weight, unless it is a single number: a bound, a power
  kBound,      // never a weight: a bound or a value to fill in
  kMoved,      // what the readers of the result make of it
  kResampled,  // as kMoved; other operands are floats too
  kUnread,     // nothing: results depend on shapes and integers only
};

// How ranks of tensor parallelism may compute parts of a node, along an axis
// that its form leaves apart (training/ranks/split_region.h).
enum class Division {
  kWhole,        // not at all
  kEven,         // in equal parts
  kUneven,       // zeros behind a part make no result and no gradient infinite
                 // or NaN, so the parts may differ
  kEvenDivisor,  // as kUneven, but operand 1 needs equal parts
};

enum class Collective {
  kNone,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast
};

// What a kQuantize scales its codes by.
enum class CodeScale {
  kOther,
  kMeasured,  // one scale, from the largest element of the operand
  kGiven,     // one scale, operand 1
  kBlocks,    // one for each block, from its largest element
};

// A set of operands: bit i stands for operand i.
using Slots = uint32_t;

constexpr Slots SlotsOf(std::initializer_list<int> operands) {
  Slots all = 0;
  for (int i : operands) all |= Slots{1} << i;
  return all;
}

std::vector<size_t> ListOf(Slots all);

constexpr bool HasSlot(Slots all, size_t i) {
  return i < 32 && (all >> i & 1) != 0;
}

// Facts of few ops. All others have these values.
struct RareFacts {
  // Operations in a run of the node; 0 if shapes are not known.
  double (*flops)(const Node& node) = ElementFlops;
  // Operands that a kernel reads on the host, such as shapes, axes and pads,
  // because they decide the amount of work. A scalar that only the arithmetic
  // uses does not count.
  Slots host = 0;
  // Operands that are matrices, filters or tables of a layer.
  Slots weights = 0;
  // Operand of a kParameterUpdate with the gradient.
  int gradient = -1;
  // Operand of a normalization with the running mean; the variance follows it.
  // 0: none.
  size_t statistics = 0;
  // What a kQuantize scales its codes by.
  CodeScale scale = CodeScale::kOther;
  // Result of a kQuantize with the sums of its operand's columns; 0: none.
  size_t column_sums = 0;
  Collective collective = Collective::kNone;
};

struct OpFacts : RareFacts {
  constexpr OpFacts(OpKind kind, OpForm form, Precision precision,
                    ConstantUse constants, Division division,
                    const RareFacts& rare = {})
      : RareFacts(rare),
        kind(kind),
        form(form),
        precision(precision),
        constants(constants),
        division(division) {}

  OpKind kind;
  OpForm form;
  Precision precision;
  ConstantUse constants;
  Division division;
};

// The row of an op of ours that no model has: passes add such nodes after
// autocast and tensor parallelism, or in the backward.
constexpr OpFacts LateOp(OpKind kind, const RareFacts& rare = {}) {
  return {kind,
          OpForm::kAny,
          Precision::kFollows,
          ConstantUse::kWeight,
          Division::kWhole,
          rare};
}

// The row of an op; null if there is none.
const OpFacts* FindFacts(std::string_view domain, std::string_view op);

// The row of the node's op. An op without a row, from another domain or a newer
// ONNX, counts as LateOp(OpKind::kOther).
const OpFacts& FactsOf(const Node& node);

inline bool IsCollective(const Node& node) {
  return FactsOf(node).kind == OpKind::kCollective;
}

}  // namespace onnx_fp8
