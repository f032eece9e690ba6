// SPDX-License-Identifier: Apache-2.0
//
// The words of a file about its own tensors: which are parameters of the
// module, which are buffers or constants. PyTorch's exporter writes a kind on
// each tensor; onnx_fp8.torch.export writes a record that says more
// (docs/formats.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Names among Graph::metadata: the record of onnx_fp8.torch.export, as the file
// has it, and the kinds that PyTorch's exporter writes beside the values, which
// the reader of files collects under this name.
inline constexpr char kExportRecord[] = "onnx_fp8.parameters";
inline constexpr char kGraphSignature[] = "pkg.torch.export.graph_signature";

// The note on a Gather whose table has a row without gradient (padding_idx).
inline constexpr char kPaddingRow[] = "onnx_fp8.padding_idx";

enum class TensorKind { kParameter, kBuffer, kConstant };

struct TensorRecord {
  TensorKind kind = TensorKind::kParameter;
  // The entry is the record's, so the other fields are known. False: PyTorch
  // wrote the kind alone, which does not tell whether a parameter is frozen.
  bool full = false;
  std::string key;            // the module's name for it; "": none
  bool requires_grad = true;  // of parameters
  bool persistent = true;     // of buffers: state_dict has it
  Shape shape;                // of the file's tensor
  bool transposed = false;    // the file holds the module's matrix transposed
  // The row of an embedding that gets no gradient from lookups.
  std::optional<int64_t> padding_idx;
};

struct ExportRecord {
  // By the name of the initializer, or of a Constant node's output. A full
  // entry replaces PyTorch's kind of the same tensor.
  std::map<std::string, TensorRecord, std::less<>> tensors;
  // Groups of the module's keys that are one tensor.
  std::vector<std::vector<std::string>> tied;
  // Tensors with equal numbers outside of `tied` are different parameters.
  bool separate = false;
  bool from_torch = false;  // the file's producer is PyTorch

  // Null if nothing is said of the tensor, or of another shape.
  const TensorRecord* Find(const std::string& name, const Shape& shape) const;
};

// Errors: a record that is no such record, naming the file.
ExportRecord ReadExportRecord(const Graph& graph);

// The text for Graph::metadata[kGraphSignature].
std::string SignatureText(const std::string& producer,
                          const std::map<std::string, TensorKind>& kinds);

}  // namespace onnx_fp8
