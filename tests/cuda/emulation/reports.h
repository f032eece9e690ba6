// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/check.h"

namespace onnx_fp8::emulation {

void AddReport(const std::string& text);
void AddExplanation(const std::string& text);

// A mistake that a real device does not report, or only by a number.
template <typename... Parts>
void Report(const Parts&... parts) {
  AddReport(Concat(parts...));
}

// Why a call is refused. It may be a question, and is not counted.
template <typename... Parts>
void Explain(const Parts&... parts) {
  AddExplanation(Concat(parts...));
}

std::string HexOf(unsigned mask);

}  // namespace onnx_fp8::emulation
