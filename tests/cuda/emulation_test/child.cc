// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation_test/child.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "base/check.h"

namespace onnx_fp8::emulation_test {
namespace {

[[noreturn]] void RunChild(const std::function<void()>& f, int output) {
  dup2(output, STDERR_FILENO);
  try {
    f();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  _exit(0);
}

std::string ReadAll(int input) {
  std::string text;
  char part[4096];
  for (ssize_t n; (n = read(input, part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(n));
  }
  return text;
}

}  // namespace

std::string TextOfChild(const std::function<void()>& f) {
  int ends[2];
  Check(pipe(ends) == 0, "no pipe for a child");
  pid_t child = fork();
  Check(child >= 0, "no process for a child");
  if (child == 0) RunChild(f, ends[1]);
  close(ends[1]);
  std::string text = ReadAll(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) text += "died\n";
  return text;
}

}  // namespace onnx_fp8::emulation_test
