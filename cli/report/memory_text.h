// SPDX-License-Identifier: Apache-2.0
//
// A memory report for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>

#include "onnx_fp8/memory_report.h"

namespace onnx_fp8 {

// Memory of the process that ran the plan.
struct ProcessMemory {
  size_t peak = 0;    // resident, as the system counts
  size_t arenas = 0;  // of the plans whose content is known: the reported one

  // Memory that the report does not see: packed operands of matrix products,
  // buffers of threads, other plans, the program and its libraries. 0 if a part
  // of the arena was never touched.
  size_t Other(const MemoryReport& report) const;
};

nlohmann::ordered_json MemoryJson(const MemoryReport& report,
                                  const std::optional<ProcessMemory>& process);
void PrintMemoryReport(const MemoryReport& report,
                       const std::optional<ProcessMemory>& process,
                       std::ostream& out);

}  // namespace onnx_fp8
