// SPDX-License-Identifier: Apache-2.0
//
// The files of `dump` (docs/formats.md): safetensors, one for each micro-batch
// of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_fp8/dumped_tensor.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

struct DumpFile {
  int64_t step = 0;
  int64_t batch = 1, batches = 1;  // the micro-batch, and how many the step has
  // The same for all files of a model: a checksum of its parameters' names and
  // shapes.
  std::string model;
  std::string recipe, provider;  // for people
  Dump tensors = {};
};

// DumpFile::model.
std::string MarkOfModel(const std::vector<ParameterInfo>& parameters);

// "blocks.0.fc.weight/dgrad/weight/codes"; the second product of the layer and
// the role is dgrad.2. `part`: "value", "codes", "scale" or "decoded".
std::string DumpedName(const DumpedTensor& tensor, const std::string& part);

// Writes a file into the folder, which is made if it is not there. The file
// appears complete or not at all. Errors: the disk; names that are not UTF-8.
void WriteDump(const std::string& folder, const DumpFile& dump);

// The path may be a file, a folder of such files or the folder of a run. In
// order of steps and micro-batches. Errors: no such file; a file that is no
// dump, or is cut off; a step of a folder without one of its micro-batches.
std::vector<DumpFile> ReadDumps(const std::string& path);

}  // namespace onnx_fp8
