// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onnx_fp8 {

// A figure of products y (M,N) = a (M,K) b (K,N) for a grid of sizes.
struct SpeedGrid {
  std::vector<int64_t> m, k, n;  // ascending
  std::vector<double> values;    // of all triples, n fastest

  // Between the cells, linear in the logarithms of the sizes; a size outside
  // has the value of the nearest size inside. REQUIRES: sizes of at least 1.
  double At(int64_t m_size, int64_t k_size, int64_t n_size) const;
};

// What FP8 gains, in one of two forms: the speed-up of whole layers over high
// precision, or the speed of a layer's products. GemmFilter::speeds decides by
// it.
struct SpeedTable {
  std::string source;  // "h100" or a file
  // Speed-up of a layer, forward and backward, over high precision. h100: with
  // rowwise, against bf16.
  SpeedGrid speedup;
  // Operations per second of products, and elements per second of quantizing a
  // tensor.
  SpeedGrid fp32, fp8;
  double quantize = 0;

  bool measured() const { return source != "h100"; }
  bool of_layers() const { return fp32.values.empty(); }
};

// Where and how a table was measured, for people; empty texts are left out.
struct SpeedOrigin {
  std::string machine, benchmark, recipe, dtype;
};

// "h100": torchao's published figures; else a file that SpeedTableJson wrote,
// of either form. Errors: no such file, another content.
SpeedTable LoadSpeedTable(const std::string& source);

// The text of such a file.
std::string SpeedTableJson(const SpeedTable& table, const SpeedOrigin& origin);

}  // namespace onnx_fp8
