// SPDX-License-Identifier: Apache-2.0
#include "data/npy.h"
#include "onnx_fp8/dataset.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"

namespace onnx_fp8 {

// The archive's arrays, then batches of "x" and "labels".
void FuzzNpz(std::string_view bytes) {
  std::string path = ScratchFile("a.npz", bytes);
  Touch(ReadNpz(path));
  DatasetSpec spec;
  spec.files = {path};
  spec.inputs = {{"x", DType::kFloat}, {"labels", DType::kInt64}};
  spec.label = "labels";
  spec.batch_size = 2;
  Dataset dataset(spec);
  Touch(dataset.Batch(0));
  Touch(dataset.Batch(dataset.batches_per_epoch()));
}

}  // namespace onnx_fp8
