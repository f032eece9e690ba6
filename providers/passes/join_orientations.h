// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// One node quantizes the rows of a tensor and its columns: a QuantizeBlock and
// a QuantizeColumns of the same operand, with the same format, become a
// QuantizeBlockTranspose, in the place of the first of them. Rows and columns
// have one scale each, or one for each 32, 64 or 128 elements. The node reads
// the operand once where two nodes read it twice, or twice where they read it
// three times. Both codes then live from there on, like the codes of tensors
// with one scale (k_major.h).
// Whole columns of at most 128 rows stay: two nodes read these twice, too. Of
// several nodes that quantize an operand's rows, or its columns, the last ones
// are joined: second runs stand in the backward, which reads both codes.
// Providers without such a kernel keep their graph.
// REQUIRES: MakeKMajor, StoreMxScales and FuseQuantize came before.
// `weights`: whether operands that depend on weights alone are among them. If
// not, their codes for the backward need not live from the forward on.
// `decoded`: whether nodes that each decode the same weight count as one
// operand. The joined node then reads one of them. Both codes of the weight
// should live longer than the step anyway: where they do not, one more code in
// memory from the forward on outweighs the decoding.
void JoinOrientations(Graph& graph, const KernelRegistry& kernels,
                      bool weights = true, bool decoded = false);

}  // namespace onnx_fp8
