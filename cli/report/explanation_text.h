// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "training/run/explain.h"

namespace onnx_fp8 {

// The explanation of a step as text and as JSON, which `explain` prints
// (docs/command_line.md).
void PrintExplanation(const std::string& folder, const StepEvidence& evidence,
                      const Explanation& explanation, std::ostream& out);
nlohmann::ordered_json ExplanationJson(const std::string& folder,
                                       const StepEvidence& evidence,
                                       const Explanation& explanation);

}  // namespace onnx_fp8
