// SPDX-License-Identifier: Apache-2.0
//
// Statistics of casts (statistics.jsonl) as pictures of tensors by steps. A
// column of a picture is one measured step or several in a row, of which the
// worst number is shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace onnx_fp8 {

struct CastSample {
  int64_t step = 0;
  float sqnr = 0;       // in dB; infinite: the cast is exact
  float saturated = 0;  // share; NaN: a product has none
  float flushed = 0;
};

// A tensor that is cast, or a product.
struct CastRow {
  std::string fqn, gemm, operand, format;
  int64_t use = 1;
  std::vector<CastSample> samples;
};

struct StepColumns {
  std::vector<int64_t> first, last;  // measured steps of each column
  size_t measured = 0;               // steps in all

  size_t size() const { return first.size(); }
  // REQUIRES: it is one of the measured steps.
  size_t Of(int64_t step) const;
};

// At most `most` columns, which have about the same number of steps.
StepColumns ColumnsOf(const std::vector<CastRow>& rows, size_t most);

// Which end of a number is bad.
enum class WorstIs { kLeast, kLargest };

// The worst number of each column of a row; NaN: there is none.
std::vector<float> WorstOf(const CastRow& row, const StepColumns& columns,
                           float CastSample::*number, WorstIs worst);

// Two letters of base64url for each number, 0 … 4095, so that a page holds
// many. A level of dB is 0.1, of a share one 400th of a power of ten:
//   dB      0: none; 1 + 10 (dB + 150), up to 4001; 4095: the cast is exact
//   shares  0: none; 1: the share is 0; 2 + 400 (log10(share) + 10)
std::string DecibelCodes(const std::vector<float>& numbers);
std::string ShareCodes(const std::vector<float>& numbers);

}  // namespace onnx_fp8
