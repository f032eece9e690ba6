// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/passes/scale_slots.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The kept scales of a run: slot i is at i of scale (N) and history (H,N),
// which is undefined if no slot is delayed.
struct ScaleState {
  std::vector<ScaleSlot> slots;
  Tensor scale, history;
};

// A checkpoint's note that lists its slots, as SlotsText.
inline constexpr char kSlotsNote[] = "session.fp8_slots";

// The kept scales of a checkpoint in `folder`, by that note and its state.
// Errors: another number of scales than of slots.
ScaleState KeptScales(const std::string& slots, const TensorMap& state,
                      const std::string& folder);

// Fills `to`, a fresh state, from `from`, that of a checkpoint of another
// recipe, filter or history length. A slot is known by its key:
// - a delayed scale is that of the same key, and its newest amaxes are kept, as
//   many as the history is long; without one it starts anew (0: this batch's
//   amax is then used);
// - a static scale stays what `to` has;
// - what `from` has beside that is dropped.
// Returns what was done, for people; "" if all was carried over as it is.
std::string CarryScales(const ScaleState& from, ScaleState* to);

}  // namespace onnx_fp8
