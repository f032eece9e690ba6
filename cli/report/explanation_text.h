// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "training/run/explain.h"

namespace onnx_fp8 {

// What `explain` says of a step, for people and for programs
// (docs/command_line.md).
void PrintExplanation(const std::string& folder, const StepEvidence& evidence,
                      const Explanation& explanation, std::ostream& out);
nlohmann::ordered_json ExplanationJson(const std::string& folder,
                                       const StepEvidence& evidence,
                                       const Explanation& explanation);

}  // namespace onnx_fp8
