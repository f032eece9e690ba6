// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer's entry points. The target is named in $ONNX_FP8_FUZZ_TARGET.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutate_model.h"

namespace {

const onnx_fp8::FuzzTarget* target = nullptr;
double slowest = 0;  // seconds

}  // namespace

extern "C" {

int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("ONNX_FP8_FUZZ_TARGET");
  target = onnx_fp8::FindFuzzTarget(name ? name : "");
  if (target) {
    std::atexit(
        [] { std::fprintf(stderr, "slowest_ms: %.1f\n", slowest * 1e3); });
    return 0;
  }
  std::fputs("expected in ONNX_FP8_FUZZ_TARGET one of:", stderr);
  for (const auto& known : onnx_fp8::FuzzTargets()) {
    std::fprintf(stderr, " %s", known.name);
  }
  std::fputs("\n", stderr);
  std::exit(2);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  RunFuzzTarget(*target, {reinterpret_cast<const char*>(data), size});
  std::chrono::duration<double> time = Clock::now() - begin;
  slowest = std::max(slowest, time.count());
  return 0;
}

size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                               unsigned seed) {
  if (std::string_view(target->name) == "model") {
    size_t mutated = onnx_fp8::MutateModel(data, size, max_size, seed);
    if (mutated > 0) return mutated;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

}  // extern "C"
