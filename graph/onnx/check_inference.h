// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// The data of a small constant; else null. ONNX's inference gets no other data,
// so no shape depends on values that change from step to step.
const Tensor* KnownData(const Value* value);

// Checks the facts that ONNX's inference functions take on trust, and then
// divide by, index with or count up to: ranks of operands that must agree,
// sizes that are data, lengths of lists. REQUIRES: the node in the form of
// opset kNormalOpset, its attributes within CheckNodes' bounds. Errors: name
// the node.
void CheckInference(const Node& node);

// Errors: the file declares output i of the node with another type than the
// inferred one. (kUndefined: none.)
void CheckDeclared(const Node& node, size_t i, DType declared, DType inferred);

// The extra work of InferNode: with auto_pad SAME_UPPER and SAME_LOWER ONNX's
// functions count up to a size one by one.
int64_t InferenceWork(const Node& node);

// No machine holds a larger tensor. Sums of such sizes, and their products with
// the bounds that CheckNodes sets to attributes, still fit 64 bits.
inline constexpr int64_t kMaxElements = int64_t{1} << 42;

// NumPy's limit.
inline constexpr int64_t kMaxRank = 64;

// True if a tensor of this shape may exist; axes of unknown size count as 1.
bool Plausible(const Shape& shape);

// Errors: a value is too large for memory by its known axes; the message names
// the node.
void CheckSizes(const Node& node, const std::vector<Value*>& values);

}  // namespace onnx_fp8
