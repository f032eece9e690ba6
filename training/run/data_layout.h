// SPDX-License-Identifier: Apache-2.0
// Sizes of a batch, for the figures of a run.
#pragma once

#include <cstdint>
#include <string>

#include "onnx_fp8/dataset.h"

namespace onnx_fp8 {

// The size of the first axis of the batch's first input that is not fed whole;
// 0 if there is none.
int64_t CountSamples(const TensorMap& batch, const DataLayout& layout);

// Number of tokens in a batch: elements of the label if it has a sequence axis
// (integer, rank 2, more than one), else 0.
int64_t CountTokens(const TensorMap& batch, const std::string& label);

}  // namespace onnx_fp8
