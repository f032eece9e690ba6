// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/ranks/split_layers.h"

namespace onnx_fp8 {

// A remark about layers that are whole on each of `ranks` ranks of the axis tp;
// "" if all are divided. Errors: no layer is divided.
std::string LayersRemark(const std::vector<LayerSplit>& layers,
                         const std::string& file, int64_t ranks);

}  // namespace onnx_fp8
