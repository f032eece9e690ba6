// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "graph/graph.h"

namespace onnx_fp8 {

// Whether a value's elements belong to samples of a batch in their order: axis
// 0 then has the same number of rows for each sample, one sample behind the
// other.
using HasSampleRows = std::function<bool(const Value*)>;

// Whether a result of `node` has such rows, by those of its operands. False if
// the op does not tell. REQUIRES: concrete shapes.
bool KeepsSampleRows(const Node& node, const Value& result, int64_t samples,
                     const HasSampleRows& has);

}  // namespace onnx_fp8
