// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "providers/ort/custom_op.h"

namespace onnx_fp8 {

// A custom op for an operator of onnxruntime-training's graphs that newer
// runtimes lack: its table of functions. The rows of graph/onnx/import_ort.cc
// compute it.
class TrainingOp : public CustomOp {
 public:
  struct Form {
    const char* op;
    size_t inputs;       // operands, optional ones included
    size_t needed;       // of them
    size_t outputs;      // results, optional ones included
    unsigned sizes = 0;  // a bit for each operand that decides shapes
    bool many_inputs = false, many_outputs = false;  // the last one repeats
    bool same_type = false;  // the first result has the first operand's type
    int integers = -1;       // the result of int64; -1: all are float
  };

  // `form` must outlive this.
  explicit TrainingOp(const Form& form);

  const Form& form() const { return form_; }

 private:
  const Form& form_;
};

// InPlaceAccumulatorV2: its first operand gets its own value plus the second
// one, or with a third operand of true the second one; float only.
struct AccumulatorOp : CustomOp {
  AccumulatorOp();
};

// The forms of all such operators, without InPlaceAccumulatorV2.
const std::vector<TrainingOp::Form>& TrainingForms();

}  // namespace onnx_fp8
