// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "onnx_fp8/dataset.h"

namespace onnx_fp8 {

// --whole, --batch-size, --seq-len, --token-dtype.
struct DataFlags {
  std::vector<std::string> whole;
  int64_t batch_size = 0;  // 0: the exported one, else 8
  int64_t seq_len = 0;     // 0: the exported one
  std::string token_dtype = "uint16";

  void AddTo(Flags& flags);
  DataOptions Make() const;
};

}  // namespace onnx_fp8
