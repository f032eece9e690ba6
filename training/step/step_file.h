// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/onnx/onnx_io.h"
#include "graph/passes/specialize.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The whole training step of a model as one ONNX model that any runtime can
// run:
//   inputs   the model's own, the label, the learning rate (with a default),
//            then state; each of the latter two is an initializer too
//   outputs  `loss` (float, rank 0, before the update), the model's own, then
//            the new state, in the order of the state inputs
//   update_binding says which output replaces which state after the step.
// Parameters keep their initializers' names; if a name is taken, ours gets a
// number. The metadata hold the facts with which a session goes on
// (graph/onnx/step_notes.h). With grad_accum > 1 the file holds a micro step,
// and <path without .onnx>.apply.onnx holds the update.
class StepFile {
 public:
  // Reads the model. Errors: TrainingSession::Create's; the model is a forward
  // pass in FP8.
  explicit StepFile(const SessionOptions& options);
  ~StepFile();

  std::vector<InputInfo> Inputs() const;
  // Notes for the user (TrainingSession::Notes).
  const std::vector<std::string>& notes() const;

  // `shapes`: of every input of the model. `values`: of inputs that decide
  // branches or sizes; the file then lacks these inputs (Specialize). Errors:
  // as TrainingSession's and WriteModel's.
  void Write(const std::map<std::string, Shape>& shapes,
             const InputValues& values, const std::string& path,
             const WriteOptions& write = {});

 private:
  struct Source;
  std::unique_ptr<Source> source_;
};

}  // namespace onnx_fp8
