// SPDX-License-Identifier: Apache-2.0
//
// Low-rank adapters of a run (`lora`): first values, merging, their folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/passes/add_adapters.h"
#include "onnx_fp8/gemm_filter.h"
#include "onnx_fp8/lora_spec.h"
#include "onnx_fp8/tensor_source.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {

// What the option `lora` says, or the settings in the folder that it names.
// Errors: ParseLora's, ReadAdapterFolder's.
LoraSpec ResolveLora(const std::string& text);

// Gives new adapters first values, by `seed` and their names.
void DrawAdapters(const std::vector<Adapter>& adapters, const LoraSpec& spec,
                  uint64_t seed, Graph* graph);

// A sentence for the user: how many layers have adapters, and their share of
// all parameters.
std::string LoraNote(const std::vector<Adapter>& adapters, const LoraSpec& spec,
                     const Graph& graph);

// The filter, with adapters in high precision unless one of its recipes is for
// them: their rank is too small for FP8 to be worth its scales.
GemmFilter WithAdapters(GemmFilter filter,
                        const std::vector<Adapter>& adapters);

// First values of the model's adapters, and of other parameters, from
// spec.folder. Errors: ReadAdapterFolder's; other settings than the model's; a
// tensor of another shape; adapters that one of the two lacks.
void ReadAdapters(TrainingModel* model);

// `weights`, by initializer, without adapters: each layer that has one gets
// W + scaling · B A, in float32, when it is pulled.
SourceMap MergeAdapters(const TrainingModel& model, SourceMap weights);

// Writes the model's adapters, and the parameters that are trained beside them,
// from `weights`, as PEFT does. Errors: the model has no adapters;
// WriteAdapterFolder's.
void ExportAdapters(const TrainingModel& model, const SourceMap& weights,
                    const std::string& folder);

}  // namespace onnx_fp8
