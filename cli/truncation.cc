// SPDX-License-Identifier: Apache-2.0
#include "cli/truncation.h"

#include <unistd.h>

#include <csignal>

#include "base/mapped_file.h"

namespace onnx_fp8 {
namespace {

struct sigaction before;

// All code here is async-signal-safe: the program may be anywhere.
void Say(const char* text, size_t size) {
  while (size > 0) {
    ssize_t n = write(STDERR_FILENO, text, size);
    if (n <= 0) return;
    text += n;
    size -= static_cast<size_t>(n);
  }
}

// Says "?" for control characters, since a model may have chosen the name.
// Latin 1's count too, with or without their first byte in UTF-8.
void SayName(const char* name) {
  unsigned char last = 0;
  for (; *name; ++name) {
    auto byte = static_cast<unsigned char>(*name);
    bool control = byte < 0x20 || byte == 0x7F;
    if (byte >= 0x80 && byte < 0xA0) control = last < 0x80 || last == 0xC2;
    Say(control ? "?" : name, 1);
    last = control ? 0 : byte;
  }
}

extern "C" void OnBusError(int signal, siginfo_t* info, void*) {
  const char* file =
      info->si_code == BUS_ADRERR ? MappedFileAt(info->si_addr) : nullptr;
  if (!file) {
    // The handler before us gets the signal again, when this returns.
    sigaction(signal, &before, nullptr);
    raise(signal);
    return;
  }
  constexpr char kBegin[] = "onnx-fp8: [";
  Say(kBegin, sizeof kBegin - 1);
  SayName(file);
  Say("]", 1);
  Say(kBecameShorter, sizeof kBecameShorter - 1);
  Say("\n", 1);
  _exit(1);
}

}  // namespace

void CatchTruncation() {
  struct sigaction old;
  sigaction(SIGBUS, nullptr, &old);
  if (old.sa_sigaction == OnBusError) return;
  before = old;
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace onnx_fp8
