// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <iostream>
#include <utility>

#include "cli/api_names.h"
#include "cli/printable.h"

namespace onnx_fp8 {
namespace {

thread_local CapturedOutput* captured = nullptr;

void Tell(const char* kind, const std::string& text) {
  if (captured) {
    captured->Tell(text);
  } else {
    std::cerr << "onnx-fp8: " << kind << ": " << Printable(InFlags(text))
              << "\n";
  }
}

}  // namespace

std::ostream& Out() { return captured ? captured->stream() : std::cout; }

std::ostream& ProgressOut() {
  thread_local std::ostream nowhere(nullptr);
  return captured ? nowhere : std::cerr;
}

void Note(const std::string& text) { Tell("note", text); }

void Notes(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) Note(text);
}

void Warn(const std::string& text) { Tell("warning", text); }

CapturedOutput::CapturedOutput(Listener listener)
    : listener_(std::move(listener)), before_(std::exchange(captured, this)) {}

CapturedOutput::~CapturedOutput() { captured = before_; }

}  // namespace onnx_fp8
