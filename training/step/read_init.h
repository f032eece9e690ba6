// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "training/step/training_model.h"

namespace onnx_fp8 {

// Gives the model the values of a .safetensors file, by PyTorch's names or by
// initializers' names: parameters, running statistics of BatchNormalization and
// the numbers of batches that moved them. The file may be a whole state_dict:
// arrays that the model lacks are not read, and model->notes names them.
// Statistics that do not move in training and get other numbers become state.
// Errors: no weights; another dtype or shape; a float array that the model
// lacks, while a parameter gets no value: one of them may have another name.
void ReadInit(const std::string& path, TrainingModel* model);

// Makes such statistics state in the model of a run that goes on without the
// file: the ones among the run's `state`. Returns them.
std::vector<Value*> KeepStatistics(const TensorMap& state, const Graph& graph);

}  // namespace onnx_fp8
