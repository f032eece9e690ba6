// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// The effect of a cast to FP8 on a tensor: the result of the op CastStatistics
// (graph/schemas/cast_statistics.cc), in the order of its elements. Counts are
// exact, sums are in double.
struct CastStatistics {
  double elements = 0;
  double zeros = 0;    // before the cast
  double flushed = 0;  // finite numbers other than 0 whose code is 0
  // Finite numbers beyond the largest code by more than half a step. The step
  // is the distance between the two largest codes.
  double saturated = 0;
  double not_finite = 0;  // NaN and Inf; no other number counts them
  double signal = 0;      // Σ x²
  double noise = 0;       // Σ (x - decoded)²
  // A line is a row (along the last axis), and of a product also a column. Of
  // the lines with a number other than 0: how many, and Σ min(1, noise /
  // signal) of each.
  double lines = 0;
  double line_noise = 0;
  double amax = 0;  // the largest |x|
  // The smallest |x| of the numbers other than 0. Inf: all numbers are 0.
  double least = std::numeric_limits<double>::infinity();
  double scale = 0;  // the largest one

  static constexpr int kNumbers = 12;
  static constexpr int kSums = 9;  // the first of them

  // The result of the op: kNumbers doubles.
  static CastStatistics From(const double* x) {
    return {x[0], x[1], x[2], x[3], x[4],  x[5],
            x[6], x[7], x[8], x[9], x[10], x[11]};
  }

  // Takes in another part of the tensor. A part that comes twice changes no
  // share or ratio if all parts do.
  void Add(const CastStatistics& part) {
    elements += part.elements;
    zeros += part.zeros;
    flushed += part.flushed;
    saturated += part.saturated;
    not_finite += part.not_finite;
    signal += part.signal;
    noise += part.noise;
    lines += part.lines;
    line_noise += part.line_noise;
    amax = std::max(amax, part.amax);
    least = std::min(least, part.least);
    scale = std::max(scale, part.scale);
  }

  // A count as a share of all elements, 0 … 1; 0 without elements.
  double Share(double count) const {
    return elements > 0 ? count / elements : 0;
  }
  // The signal-to-noise ratio of the cast in dB; Inf without noise.
  double Sqnr() const {
    return noise > 0 ? 10 * std::log10(signal / noise)
                     : std::numeric_limits<double>::infinity();
  }
  // The same of a line, on average: a few large lines don't hide the noise of
  // the others. At least 0.
  double LineSqnr() const {
    return line_noise > 0 ? 10 * std::log10(lines / line_noise)
                          : std::numeric_limits<double>::infinity();
  }
  // log2(amax / least): the bits of exponent that the numbers span; 0 if all
  // are 0.
  double RangeBits() const { return amax > 0 ? std::log2(amax / least) : 0; }
};

// A cast to FP8 in a step, or an FP8 product. The numbers of a product describe
// at most 128 of its rows; x is then the same rows of a float32 product
// of the operands before their casts. A product's `gemm` is its role, and its
// `use` counts the layer's products of that role.
struct MeasuredCast {
  std::string fqn;      // of the layer's weight
  std::string gemm;     // the first one that reads the codes: "forward", …
  std::string operand;  // "input", "weight", "grad_output" or "product"
  int64_t use = 1;      // counts the copies of one tensor, in order
  DType format = DType::kE4M3;
  CastStatistics numbers = {};

  bool is_product() const { return operand == "product"; }
};

// Adds the numbers of each cast to the entry of the same cast in `all`. A cast
// without an entry gets one.
void JoinCasts(const std::vector<MeasuredCast>& casts,
               std::vector<MeasuredCast>* all);

}  // namespace onnx_fp8
