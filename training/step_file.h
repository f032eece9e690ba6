// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/onnx_io.h"
#include "graph/passes/specialise.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// Writes the whole training step as one ONNX model that any runtime can run:
//   inputs   the model's own, the label, the learning rate (with a default),
//            then state; each of the latter two is an initializer too
//   outputs  `loss` (float, rank 0, before the update), the model's own, then
//            the new state, in the order of the state inputs
//   update_binding says which output replaces which state after the step.
// Parameters keep their initializers' names; if a name is taken, ours gets a
// number. `shapes`: of every input of the model. `values`: of inputs that
// decide branches or sizes; the file then lacks these inputs (Specialise). With
// grad_accum > 1 the file holds a micro step, and <path without
// .onnx>.apply.onnx holds the update. Returns notes for the user
// (TrainingSession::Notes). Errors: as TrainingSession's and WriteModel's.
std::vector<std::string> WriteTrainingStep(
    const SessionOptions& options, const std::map<std::string, Shape>& shapes,
    const InputValues& values, const std::string& path,
    const WriteOptions& write = {});

}  // namespace onnx_fp8
