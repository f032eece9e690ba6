// SPDX-License-Identifier: Apache-2.0
//
// The folder that onnxruntime.training.artifacts.generate_artifacts writes:
// training_model.onnx, checkpoint, and optionally eval_model.onnx and
// optimizer_model.onnx.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/ort_checkpoint.h"
#include "graph/onnx/ort_training_model.h"
#include "graph/rewrite/rewrite_ort_model.h"
#include "onnx_fp8/optimizer_spec.h"

namespace onnx_fp8 {

struct OrtArtifacts {
  OrtForward forward;
  OrtCheckpoint checkpoint;
  // From optimizer_model.onnx, without its learning rate, which is an input.
  std::optional<OptimizerSpec> optimizer;
};

// Paths of the files in the folder.
std::string OrtTrainingModel(const std::string& folder);
std::string OrtEvalModel(const std::string& folder);
std::string OrtOptimizerModel(const std::string& folder);
std::string OrtCheckpointFile(const std::string& folder);

// Whether there is a training model in the folder.
bool HoldsOrtArtifacts(const std::string& folder);

// `checkpoint`: a file to read in place of the folder's. Errors: no such
// folder, no training model or checkpoint in it, as ReadOrtForward's and
// ReadOrtCheckpoint's, an optimizer that is not known.
OrtArtifacts ReadOrtArtifacts(const std::string& folder,
                              const Budgets& budgets = {},
                              const std::string& checkpoint = "");

// The forward graph as for inference, without its loss. Its outputs are the
// values named `outputs`, by default the scores that the loss reads. Errors: no
// such value; the loss reads none or several.
void PrepareInference(OrtArtifacts& artifacts,
                      const std::vector<std::string>& outputs = {});

// Writes the artifacts in `folder` to the new folder `out`, with the admitted
// products in FP8 (rewrite_ort_model.h). The checkpoint gets the parameter of
// delayed scales, and the recipe and this program's version as properties.
// Errors: ReadOrtArtifacts', RewriteOrtTraining's; `out` exists. Nothing is
// left of `out` then.
OrtRewriteReport RewriteOrtArtifacts(const std::string& folder,
                                     const std::string& out,
                                     const Fp8Spec& spec,
                                     const Budgets& budgets = {});

}  // namespace onnx_fp8
