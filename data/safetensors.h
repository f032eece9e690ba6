// SPDX-License-Identifier: Apache-2.0
//
// The safetensors format: 8 bytes header length (little endian), a JSON header
// {name: {dtype, shape, data_offsets}, "__metadata__": {…}}, the data.
#pragma once

#include <map>
#include <string>

#include "base/file.h"
#include "data/arrays.h"
#include "onnx_fp8/tensor_source.h"

namespace onnx_fp8 {

// The header's entry of the metadata: no tensor has this name.
inline constexpr char kReservedName[] = "__metadata__";

using StringMap = std::map<std::string, std::string>;

// All tensors of the file, each mapped by itself; `metadata` (may be null) gets
// the header's `__metadata__`. Errors: any violation of the format's rules
// (offsets that overlap, leave holes or lie outside, sizes that do not fit
// dtype and shape, a dtype without counterpart), naming file and tensor.
TensorMap ReadSafetensors(const std::string& path,
                          StringMap* metadata = nullptr);

// Equal tensors give equal bytes. The widest elements come first, then tensors
// are ordered by name, so that every tensor is aligned for its dtype. Errors:
// strings and undefined tensors, a name that is not UTF-8, a file that can't be
// written.
void WriteSafetensors(OutputFile& file, const SourceMap& tensors,
                      const StringMap& metadata = {});

// The same, but the file appears complete or not at all.
void WriteSafetensors(const std::string& path, const SourceMap& tensors,
                      const StringMap& metadata = {});

// Writes the same file as WriteSafetensors, but pulls the tensors in the order
// of their names: sources whose names are neighbors may share work.
void WriteSafetensorsByName(const std::string& path, const SourceMap& tensors,
                            const StringMap& metadata = {});

}  // namespace onnx_fp8
