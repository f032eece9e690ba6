// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/constants.h"

namespace onnx_fp8 {

// Float tensors whose values show that they are no weights, each with a text
// that says what it is. Exporters write a model's buffers like its parameters.
// - A mask: its first row holds infinities or values of -1e9 and below.
// - Positions by sines and cosines: a² + b² = 1 for all pairs of elements. A
//   pair comes from two initializers of one shape (rotary tables), or from one
//   tensor: neighbors, or the halves of its last axis (sinusoidal encodings).
//   At least half of the pairs must have no 0 in them: scales of 1 and biases
//   of 0 are parameters.
// - A Fourier basis: the rows are a window times cosines of 0, 1, 2, … periods,
//   then times sines (the layer of a spectrogram).
// - Frequencies: four or more positive numbers along one axis, with the same
//   ratio between neighbors, the last at most a tenth of the first, and all
//   rows alike (rotary, sinusoidal, ALiBi).
std::unordered_map<const Value*, std::string> FixedTables(
    const std::vector<HeldTensor>& tensors);

// Two or more positive numbers along one axis, falling, and all rows alike. The
// values of frequencies that are scaled to longer contexts tell no more than
// that.
bool AreFalling(const Tensor& tensor);

}  // namespace onnx_fp8
