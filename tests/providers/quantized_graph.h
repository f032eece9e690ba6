// SPDX-License-Identifier: Apache-2.0
//
// Graphs that FuseQuantize makes one node of.
#pragma once

#include <memory>
#include <string>

#include "graph/graph.h"
#include "graph/schemas/fused_quantize.h"

namespace onnx_fp8 {

// How results are quantized.
struct QuantizedForm {
  std::string shape;      // of the result
  std::string row, lead;  // shapes of a row, and of a number for each row
  std::string matrix, t;  // of the codes before padding, and of their
                          // transpose, or "", which ops with scales of rows
                          // never have
  bool narrow, read;      // rounded to bfloat16; read by another node, too
  bool exact = false;     // also read before it is rounded
  bool operands = false;  // of the result's shape are rounded, too
};

// The producer of a row, then its quantizers, whose scales are the inputs
// given_*. All results that no node reads are outputs.
std::shared_ptr<Graph> QuantizedGraph(const FusedQuantizer& row,
                                      const QuantizedForm& form);

}  // namespace onnx_fp8
