// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/fp8/scale_slots.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The kept scales of a run: slot i is entry i of scale (N) and column i of
// history (H,N), which is undefined if no slot is delayed.
struct ScaleState {
  std::vector<ScaleSlot> slots;
  Tensor scale, history;
};

// A checkpoint's note that lists its slots, as SlotsText.
inline constexpr char kSlotsNote[] = "session.fp8_slots";

// The kept scales of a checkpoint in `folder`, by that note and its state.
// Errors: the numbers of scales and slots differ.
ScaleState KeptScales(const std::string& slots, const TensorMap& state,
                      const std::string& folder);

// The slots for people. `kept`: the state of their scales; undefined before the
// first step.
std::vector<ScaleInfo> ScaleInfos(const std::vector<ScaleSlot>& slots,
                                  const Tensor& kept);

// Fills `to`, a fresh state, from `from`, the state of a checkpoint with
// another recipe, filter or history length. A slot is found by its key:
// - a delayed scale takes the scale of the same key and its newest amaxes, as
//   many as the history is long; if there is none it starts anew (0: the
//   batch's own amax is then used);
// - a static scale keeps its value in `to`;
// - all other scales of `from` are dropped.
// Returns a report for people; "" if all was carried over unchanged.
std::string CarryScales(const ScaleState& from, ScaleState* to);

}  // namespace onnx_fp8
