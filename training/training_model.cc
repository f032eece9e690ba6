// SPDX-License-Identifier: Apache-2.0
#include "training/training_model.h"

#include "graph/onnx_io.h"
#include "graph/passes/batch_norm_mode.h"
#include "graph/passes/compute_in_float.h"
#include "graph/passes/trained_parameters.h"
#include "onnx_fp8/check.h"
#include "training/safetensors.h"
#include "training/static_scales.h"
#include "training/torch_weights.h"

namespace onnx_fp8 {

std::vector<ParameterInfo> TrainingModel::Parameters() const {
  std::vector<ParameterInfo> infos;
  for (const Value* value : graph->Initializers()) {
    bool trained = value->role == Role::kParameter;
    if (!trained && value->role != Role::kFrozen) continue;
    infos.push_back({value->name, names.at(value->name).fqn, value->dtype,
                     *value->shape, trained});
  }
  return infos;
}

TrainingModel LoadTrainingModel(const SessionOptions& options) {
  TrainingModel model;
  model.graph = ReadModel(options.model);
  ComputeInFloat(*model.graph);
  std::string note = SetBatchNormMode(*model.graph, options.batch_norm);
  if (!note.empty()) model.notes.push_back(note);
  MarkParameters(*model.graph, {options.train, options.freeze});
  model.names = NameParameters(*model.graph);
  if (!options.scales.empty()) model.scales = ReadStaticScales(options.scales);
  if (!options.init.empty()) {
    TensorMap arrays = ReadSafetensors(options.init);
    for (auto& [name, tensor] :
         FromTorch(arrays, model.Parameters(), model.names, options.init)) {
      model.graph->Find(name)->data = tensor;
    }
  }
  return model;
}

StepSource MakeStepSource(const SessionOptions& options,
                          const TrainingModel& model,
                          const Evaluator& evaluator) {
  return {model.graph.get(),
          options.loss,
          options.optimizer,
          {options.recipe, options.filter, model.names, model.scales},
          options.grad_accum,
          &evaluator};
}

}  // namespace onnx_fp8
