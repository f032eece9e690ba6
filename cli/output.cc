// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <iostream>
#include <utility>

namespace onnx_fp8 {
namespace {

thread_local std::ostream* captured = nullptr;

}  // namespace

std::ostream& Out() { return captured ? *captured : std::cout; }

CapturedOutput::CapturedOutput() : before_(std::exchange(captured, &stream_)) {}

CapturedOutput::~CapturedOutput() { captured = before_; }

}  // namespace onnx_fp8
