// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/reports.h"

#include <cstdio>

#include "tests/cuda/emulation/emulation.h"

namespace onnx_fp8::emulation {
namespace {

int reports = 0;

std::string& Last() {
  static auto& last = *new std::string;
  return last;
}

}  // namespace

void AddReport(const std::string& text) {
  ++reports;
  AddExplanation(text);
}

void AddExplanation(const std::string& text) {
  Last() = text;
  std::fprintf(stderr, "emulated CUDA: %s\n", text.c_str());
}

std::string HexOf(unsigned mask) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", mask);
  return text;
}

int Reports() { return reports; }

std::string LastReport() { return Last(); }

}  // namespace onnx_fp8::emulation
