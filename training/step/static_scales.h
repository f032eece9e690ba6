// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/fp8/scale_slots.h"
#include "training/state/carry_scales.h"

namespace onnx_fp8 {

// The scales of a checkpoint in `folder`, delayed and static ones, without
// scales that were never set. `source` is empty if none is left.
StaticScales AsStatic(const ScaleState& kept, const std::string& folder);

// Scales by slot, from a JSON file that WriteStaticScales wrote, or (as
// AsStatic) from the newest checkpoint in the folder of a run with delayed or
// static scaling. Errors: no such file, another content, a scale that is not a
// positive normal float.
StaticScales ReadStaticScales(const std::string& path);

// {"format": "onnx_fp8.scales", "version": 1, "scales": {KEY: scale, …}}, keys
// as ScaleSlot::Key's. Errors: the disk.
void WriteStaticScales(const std::string& path, const StaticScales& scales);

}  // namespace onnx_fp8
