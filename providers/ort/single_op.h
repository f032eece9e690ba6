// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/schemas.h"
#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

// A custom op of the runtime that runs one op of ours: its table of functions,
// as a row of custom_ops.cc describes it.
class SingleOp : public OrtCustomOp {
 public:
  // `op`: of our own domain; it must outlive this.
  explicit SingleOp(const OpDefinition& op);

  const OpDefinition& op() const { return op_; }
  size_t num_inputs() const { return inputs_; }
  size_t num_outputs() const { return outputs_; }

 private:
  const OpDefinition& op_;
  size_t inputs_, outputs_;
};

}  // namespace onnx_fp8
