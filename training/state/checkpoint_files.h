// SPDX-License-Identifier: Apache-2.0
//
// The files in a checkpoint's folder: the manifest, state.safetensors with all
// whole tensors and the first rank's rows of the others, and for each other
// rank state.00001.safetensors with its rows; docs/formats.md. The manifest
// also names a file beside the folder (frozen_file.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {

// Writes the state file of rank `rank`. `options.shards`: the tensors of which
// `state` has parts; the rows that exist are written. Other tensors: the first
// rank's. Returns the manifest's entries for the file, as JSON. Errors: the
// disk; a tensor of options.finite that is not.
std::string WriteStateFile(const std::string& folder, int rank,
                           const SourceMap& state, const SaveOptions& options,
                           const FileHook& hook);

// `entries`: from all ranks' files, in order. `frozen`: the entry of the file
// of frozen weights; "": there is none.
void WriteManifest(const std::string& folder, const Checkpoint& checkpoint,
                   const std::vector<std::string>& entries,
                   const std::string& frozen, const FileHook& hook);

// The name of the file of frozen weights that a checkpoint needs; "": none.
// Errors: a manifest that can't be read.
std::string NameOfFrozenFile(const std::string& folder);

// Whether it is the folder of a checkpoint.
bool HoldsCheckpointFiles(const std::string& folder);

// A checkpoint by its folder. Errors: LoadCheckpoint's.
Checkpoint ReadCheckpointFiles(const std::string& folder,
                               const std::string& model,
                               const TensorsToRead& only);

}  // namespace onnx_fp8
