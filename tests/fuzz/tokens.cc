// SPDX-License-Identifier: Apache-2.0
#include "data/token_file.h"
#include "data/token_index.h"
#include "onnx_fp8/dataset.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"

namespace onnx_fp8 {

// Two bytes for the sequence length, one for the type of a token and of the
// inputs, one for the batch size; then the file, or an index of two shards.
void FuzzTokens(std::string_view bytes) {
  if (bytes.size() < 4) return;
  auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  if ((byte(2) & 8) != 0) {
    ScratchFile("a.bin", "12345678");
    ScratchFile("b.bin", "1234");
    ReadTokenIndex(ScratchFile("index.json", bytes.substr(4)), DType::kUInt16);
    return;
  }
  DatasetSpec spec;
  spec.files = {ScratchFile("a.bin", bytes.substr(4))};
  spec.seq_len = byte(0) | byte(1) << 8;
  spec.token_dtype = (byte(2) & 1) != 0 ? DType::kUInt32 : DType::kUInt16;
  DType input = (byte(2) & 2) != 0 ? DType::kInt32 : DType::kInt64;
  spec.inputs = {{"ids", input}, {"labels", DType::kInt64}};
  spec.label = "labels";
  spec.batch_size = byte(3) + 1;
  spec.shuffle_block = byte(2) >> 4;
  spec.drop_last = (byte(2) & 4) != 0;
  Touch(ReadTokens(spec.files[0], spec.token_dtype));
  Dataset dataset(spec);
  Touch(dataset.Batch(0));
  Touch(dataset.Batch(dataset.batches_per_epoch() + 1));
}

}  // namespace onnx_fp8
