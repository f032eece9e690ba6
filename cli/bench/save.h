// SPDX-License-Identifier: Apache-2.0
//
// --save of the benchmarks: the table that --auto-filter reads.
#pragma once

#include <string>

#include "onnx_fp8/speed_table.h"

namespace onnx_fp8 {

// "avx512bf16, packed avx512, 2 threads", for people.
std::string MachineText(const std::string& provider);

void SaveSpeedTable(const std::string& file, const SpeedTable& table,
                    const SpeedOrigin& origin);

}  // namespace onnx_fp8
