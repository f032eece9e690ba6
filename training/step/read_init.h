// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "training/step/given_weights.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {

// Gives the model the values of other files, by PyTorch's names or by
// initializers' names: parameters, running statistics of BatchNormalization and
// the numbers of batches that moved them. They may be a whole state_dict:
// arrays that the model lacks are not read, and model->notes names them.
// Statistics that do not move in training and get other numbers become state.
// Errors: another dtype or shape; an array that the model lacks and that may be
// a weight (a float, or a matrix of codes or packed integers), while a
// parameter gets no value: one of them may have another name; a tensor without
// data that gets no value.
void ReadInit(GivenWeights given, TrainingModel* model);

// Errors: missing data of a tensor that is no state, so that no checkpoint has
// it.
void RequireState(const MissingData& missing, const Graph& graph);

// Makes such statistics state in the model of a run that goes on without the
// file: the ones among the run's `state`. Returns them.
std::vector<Value*> KeepStatistics(const TensorMap& state, const Graph& graph);

}  // namespace onnx_fp8
