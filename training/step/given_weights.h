// SPDX-License-Identifier: Apache-2.0
//
// Weights of a model that lie in other files than the model's own.
#pragma once

#include <set>
#include <string>

#include "data/scaled_weights.h"
#include "graph/export_record.h"
#include "graph/graph.h"
#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The file or folder that options.weights or options.init names; "": neither
// does.
std::string WeightsOf(const SessionOptions& options);

// Changes the options for a session that restores a checkpoint, which has the
// weights and adapters: their files may exist no longer.
void LeaveWeights(SessionOptions* options);

// Errors: OptionErrors about options that do not go together, and
// CheckRenames'.
void CheckWeightOptions(const SessionOptions& options);

struct GivenWeights {
  std::string path;       // of WeightsOf; "": there are none
  std::string remark;     // of ReadWeightFiles
  StoredWeights weights;  // renamed
  // Tensors of the model whose data files are missing: the weights have them.
  MissingData missing;
  std::set<std::string> drawn;  // tensors of the model without a weight
};

// Opens the files of WeightsOf. Errors: ReadWeightFiles', DecodeScaled's and
// RenameWeights'; files without tensors.
GivenWeights OpenWeights(const SessionOptions& options);

// Names by which weights may know an initializer: its own, its key in the
// file's record, and the keys that the record ties to that one.
std::set<std::string> NamesOfWeight(const ExportRecord& record,
                                    const std::string& initializer,
                                    const Shape& shape);

// The missing tensors for which there is no weight.
MissingData WithoutWeights(const MissingData& missing,
                           const StoredWeights& weights, const Graph& graph);

}  // namespace onnx_fp8
