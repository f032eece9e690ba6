// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/flags.h"
#include "onnx_fp8/sharding.h"

namespace onnx_fp8 {

// --shard, --gather-dtype.
struct ShardFlags {
  std::string shard = "none", gather_dtype = "fp8";

  void AddTo(Flags& flags);
  // Errors: UsageError for flags that say nothing for `ranks` ranks.
  void Check(const Flags& flags, int64_t ranks) const;
  ShardSpec Make() const;
};

}  // namespace onnx_fp8
