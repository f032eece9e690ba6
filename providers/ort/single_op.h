// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/schemas.h"
#include "onnx_fp8/dtype.h"
#include "providers/ort/custom_op.h"

namespace onnx_fp8 {

// A custom op of the runtime that runs one op of ours: its table of functions,
// as a row of custom_ops.cc describes it.
class SingleOp : public CustomOp {
 public:
  // `op`: of our own domain; it must outlive this. `results`: the dtypes of the
  // results; kUndefined: any. Ops of one name need different ones.
  SingleOp(const OpDefinition& op, std::vector<DType> results);

  const OpDefinition& op() const { return op_; }
  size_t num_inputs() const { return inputs_; }
  const std::vector<DType>& results() const { return results_; }

 private:
  const OpDefinition& op_;
  size_t inputs_;
  std::vector<DType> results_;
};

// The dtypes that the op's results may have, one list for each SingleOp. The
// op's own inference says which of them a node has. onnxruntime 1.19 heeds it
// only if all axes have names (tensor_facts.h), and else takes the first list.
std::vector<std::vector<DType>> ResultTypes(const OpDefinition& op);

}  // namespace onnx_fp8
