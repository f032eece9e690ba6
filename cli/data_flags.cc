// SPDX-License-Identifier: Apache-2.0
#include "cli/data_flags.h"

namespace onnx_fp8 {

void DataFlags::AddTo(Flags& flags) {
  flags.Int("--batch-size", &batch_size, 1,
            "samples per batch (default: the exported one, else 8)");
  flags.List("--whole", &whole, "arrays that are fed whole: no sample axis");
  flags.Int("--seq-len", &seq_len, 1, "token files: tokens per sample");
  flags.Choice("--token-dtype", &token_dtype, {"uint16", "uint32"},
               "token files: type of a token (default: uint16)");
}

DataOptions DataFlags::Make() const {
  return {whole, batch_size, seq_len, ParseDType(token_dtype)};
}

}  // namespace onnx_fp8
