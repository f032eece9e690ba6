// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "onnx_fp8/session.h"
#include "training/dataset.h"

namespace onnx_fp8 {

// --whole, --batch-size, --seq-len, --token-dtype.
struct DataFlags {
  std::vector<std::string> whole;
  int64_t batch_size = 0;  // 0: the exported one, else 8
  int64_t seq_len = 0;     // 0: the exported one
  std::string token_dtype = "uint16";

  void AddTo(Flags& flags);
};

// How the arrays of a data set map to the inputs of a model.
struct DataLayout {
  std::vector<DatasetInput> inputs;  // the label included
  int64_t batch_size = 0;
  bool fixed_batch = false;  // the model takes no other batch size
  int64_t seq_len = 0;       // of token files; 0: not given, not fixed
  std::string label;
};

// The batch axis is the first axis of the first input that --whole does not
// name. An input is fed whole if it is a scalar, or if its first axis has
// another name or another fixed size. The label is per sample unless --whole
// names it. Errors: UsageError if --whole names no input, or --batch-size or
// --seq-len contradict the model.
DataLayout LayOutData(const std::vector<InputInfo>& inputs,
                      const LossSpec& loss, const DataFlags& flags);

// Batches in the files' order, the last one partial. Training sets shuffle,
// seed and drop_last.
DatasetSpec MakeDatasetSpec(const std::vector<std::string>& files,
                            const DataLayout& layout, const DataFlags& flags,
                            const Budgets& budgets = {});

// The data set; its notes go to stderr. Errors: Dataset's.
Dataset OpenDataset(const DatasetSpec& spec);

// Number of tokens in a batch: elements of the label if it has a sequence axis
// (integer, rank >= 2), else 0.
int64_t CountTokens(const TensorMap& batch, const std::string& label);

}  // namespace onnx_fp8
