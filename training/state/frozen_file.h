// SPDX-License-Identifier: Apache-2.0
//
// The weights of which a run keeps codes alone (FrozenWeights), in a file that
// all checkpoints of a folder share:
//
//   DIR/checkpoints/frozen_0123456789abcdef.safetensors
//
// Its name is a hash of its tensors, so a file of a name never changes. A
// tensor has the dtype in which a file of weights had it
// (TensorSource::stored).
#pragma once

#include <optional>
#include <string>

#include "base/file.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

struct FrozenFile {
  std::string path;   // a place where it lies
  std::string entry;  // of a manifest, as JSON: name, bytes, tensors
};

bool IsFrozenFileName(const std::string& name);

// Makes the file of these tensors in `folder`, if it does not lie there.
// `known`: the file, if the tensors have been written before; then it gets
// another name (a hard link) where the file system can do that. Errors: the
// disk; the file is then gone.
FrozenFile KeepFrozenFile(const std::string& folder, const SourceMap& tensors,
                          const std::optional<FrozenFile>& known,
                          const FileHook& hook = {});

// The file in `folder` that an entry names. Errors, for an entry that somebody
// else wrote: another name; [where] another form.
FrozenFile FrozenFileIn(const std::string& folder, const std::string& entry,
                        const std::string& where);

// The tensors, each read when it is pulled. REQUIRES: FrozenFileIn's file.
// Errors: ReadSafetensors'; another size or other tensors than the entry has.
SourceMap ReadFrozenFile(const FrozenFile& file);

}  // namespace onnx_fp8
