// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

int main(int argc, char** argv) {
  return onnx_fp8::Main({argv + 1, argv + argc});
}
