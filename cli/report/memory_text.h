// SPDX-License-Identifier: Apache-2.0
//
// A memory report for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>

#include "onnx_fp8/memory_report.h"

namespace onnx_fp8 {

// Of the process that ran the plan.
struct ProcessMemory {
  size_t peak = 0;    // resident, as the system counts
  size_t arenas = 0;  // of the plans that count as known: the reported one

  // What the report does not see: packed operands of matrix products, buffers
  // of threads, other plans, the program and its libraries. 0 where not all of
  // the arena was ever touched.
  size_t Other(const MemoryReport& report) const;
};

nlohmann::ordered_json MemoryJson(const MemoryReport& report,
                                  const std::optional<ProcessMemory>& process);
void PrintMemoryReport(const MemoryReport& report,
                       const std::optional<ProcessMemory>& process,
                       std::ostream& out);

}  // namespace onnx_fp8
