// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <csignal>

namespace onnx_fp8 {
namespace {

volatile std::sig_atomic_t interrupted = 0;

extern "C" void NoteInterrupt(int signal) {
  if (interrupted) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  interrupted = 1;
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = NoteInterrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void ForgetInterrupts() { interrupted = 0; }

bool Interrupted() { return interrupted != 0; }

}  // namespace onnx_fp8
