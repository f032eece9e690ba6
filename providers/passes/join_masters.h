// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Lets the kernel of an update read and write its parameter as the state keeps
// it in fewer bytes (KernelTraits::coded_state): the node that decodes it joins
// the update, and so does the node that encodes the new one (DecodeMaster and
// EncodeMaster, or Cast and RoundStochastic). The parameter then is no float in
// memory. If other nodes read the decoded parameter, its decoder stays for
// them. If other nodes read the new float, nothing joins. No bit changes.
// Behind its own operands the update then has
//   correction     with the attribute of its dtype, or
//   seed, update   of the draws; the attributes are theirs, but the stream is
//                  `master_stream`
// and behind its own results the new correction. Comes before JoinMoments,
// which adds its operands and results behind these.
void JoinMasters(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
