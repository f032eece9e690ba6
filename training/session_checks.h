// SPDX-License-Identifier: Apache-2.0
//
// Checks of the arguments of a session.
#pragma once

#include "collectives/mesh.h"
#include "onnx_fp8/provider_options.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// What several ranks of the axis tp compute alike must be the same to the last
// bit on all of them, or their copies of the state drift apart. Errors:
// OptionError. `ranks` may be null.
void CheckOptions(const ProviderOptions& options, const MeshRanks* ranks);

// Another rate than a number of at least 0 would change all weights to NaN, or
// move them uphill. Errors: OptionError.
void CheckRate(double lr);

// Whether the feeds have the label that the loss reads; true for a model that
// computes its own loss.
bool HasLabel(const LossSpec& loss, const TensorMap& feeds);

}  // namespace onnx_fp8
