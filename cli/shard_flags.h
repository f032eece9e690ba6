// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/flags.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The ranks and how they divide the work: --mesh, --shard, --gather-dtype,
// --bucket-bytes.
struct ShardFlags {
  std::string mesh, shard = "none", gather_dtype = "fp8";
  int64_t bucket_bytes = SessionOptions().bucket_bytes;

  void AddTo(Flags& flags);
  // Errors: UsageError for flags that say nothing for this mesh.
  void Check(const Flags& flags) const;
  ShardSpec Make() const;
  // Whether a rank holds only a part of the parameters or of their moments.
  bool DividesState() const;
};

}  // namespace onnx_fp8
