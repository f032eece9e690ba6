// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace onnx_fp8::emulation_test {

// What f writes to stderr, in a process of its own. An exception becomes the
// line "error: …", death by a signal "died".
std::string TextOfChild(const std::function<void()>& f);

}  // namespace onnx_fp8::emulation_test
