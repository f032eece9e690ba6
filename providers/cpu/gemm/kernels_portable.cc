// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/gemm/kernels.inc"

namespace onnx_fp8 {
namespace {

// Vectors of four, which every compiler has; no fused multiply-add.
struct Floats {
  typedef float Register __attribute__((vector_size(16)));
  using Operand = Register;
  static constexpr int kWidth = 4, kDepth = 1;

  static Register Zero() { return Register{}; }
  static Register Load(const float* p) {
    Register x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static void Store(float* p, Register x) { std::memcpy(p, &x, sizeof(x)); }
  static Register Set(float x) { return Register{x, x, x, x}; }
  static Register Add(Register x, Register y) { return x + y; }
  static Register Multiply(Register x, Register y) { return x * y; }
  static Operand Read(const char* p) {
    return Load(reinterpret_cast<const float*>(p));
  }
  static Operand Spread(const char* p) {
    return Set(*reinterpret_cast<const float*>(p));
  }
  static Register MultiplyAdd(Register x, Operand a, Operand b) {
    return x + a * b;
  }
};

}  // namespace

extern const GemmKernels kGemmPortable = {
    "portable", PanelLayout::kFloat, PanelLayout::kFloat,       6,   8, 96,
    256,        Block<Floats, 6, 2>, OnRegisters<Floats, 6, 2>, true};

}  // namespace onnx_fp8
