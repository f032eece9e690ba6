// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/constants.h"

namespace onnx_fp8 {

struct FixedTable {
  std::string text;  // for people: "a mask"
  // How much the numbers prove.
  enum Proof {
    kHint,   // a weight of arithmetic may hold them, too, if only just
    kTable,  // no weight holds them, unless it began as such a table
    kSure,   // no weight holds them
  } proof = kHint;
};

// Float tensors whose values show that they are no weights. Exporters write a
// model's buffers like its parameters.
// - A mask (kSure): its first row holds infinities or values of -1e9 and below.
// - A Fourier basis (kSure): the rows are a window times cosines of 0, 1, 2, …
//   periods, then times sines (the layer of a spectrogram).
// - Positions by sines and cosines: a² + b² = 1 for all pairs of elements, and
//   along one axis of 8 or more each pair turns by the same angle from step to
//   step, the fastest once around or more (kHint); kTable: along 16 or more
//   steps, three times around or more. A pair comes from two initializers of
//   one shape (rotary tables), or from one tensor: neighbors, or the halves of
//   its last axis (sinusoidal encodings). At least half of the pairs must have
//   no 0 in them: scales of 1 and biases of 0 are parameters.
// - Frequencies (kHint): see AreFrequencies.
std::unordered_map<const Value*, FixedTable> FixedTables(
    const std::vector<HeldTensor>& tensors);

// Four or more positive numbers along one axis, with the same ratio between
// neighbors, the last at most a tenth of the first, and all rows alike (rotary,
// sinusoidal, ALiBi).
bool AreFrequencies(const Tensor& tensor);

// Two or more positive numbers along one axis, falling, and all rows alike. The
// values of frequencies that are scaled to longer contexts tell no more than
// that.
bool AreFalling(const Tensor& tensor);

}  // namespace onnx_fp8
