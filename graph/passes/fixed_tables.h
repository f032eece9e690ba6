// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/constants.h"

namespace onnx_fp8 {

// Float tensors whose values say that they are no weights, and what they are
// instead. Exporters write a model's buffers like its parameters.
// - A mask: its first row holds infinities or values of -1e9 and below.
// - Positions by sines and cosines: a² + b² = 1 for all pairs of elements, of
//   two initializers of one shape (rotary tables), or of one, neighbours or the
//   halves of its last axis (sinusoidal encodings). Half of the pairs at least
//   must have no 0 in them: scales of 1 and biases of 0 are parameters.
// - A Fourier basis: the rows are a window times cosines of 0, 1, 2, … periods,
//   then times sines (the layer of a spectrogram).
// - Frequencies: four positive numbers or more along one axis, each the same
//   part of the one before, the last a tenth of the first or less, and all rows
//   alike (rotary, sinusoidal, ALiBi).
std::unordered_map<const Value*, std::string> FixedTables(
    const std::vector<HeldTensor>& tensors);

// Two positive numbers or more along one axis, falling, and all rows alike.
// Frequencies that are scaled to longer contexts say no more by their values.
bool AreFalling(const Tensor& tensor);

}  // namespace onnx_fp8
