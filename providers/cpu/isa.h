// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8 {

// Vector instructions that kernels are compiled for; x86-64-v3 has AVX2,
// x86-64-v4 AVX-512.
enum class Isa { kBaseline, kV3, kV4 };

// The best of this machine.
Isa BestIsa();

namespace isa {

#if defined(__x86_64__)
template <typename Fn>
__attribute__((noinline, flatten,
               target("arch=x86-64-v4,prefer-vector-width=512"))) void
RunV4(Fn fn) {
  fn();
}

template <typename Fn>
__attribute__((noinline, flatten, target("arch=x86-64-v3"))) void RunV3(Fn fn) {
  fn();
}
#endif

template <typename Fn>
__attribute__((noinline, flatten)) void RunBaseline(Fn fn) {
  fn();
}

}  // namespace isa

// Calls fn(), compiled once per instruction set: fn is inlined whole, so loops
// over arrays in it are vectorised for the one that is chosen here. The build
// contracts no multiply-adds, so all give the same bits. fn captures by value
// (a reference could alias what it writes) and throws nothing (messages would
// be inlined too). Function versions by ifunc (target_clones) would do the
// same but know no templates.
template <typename Fn>
void OnIsa(Isa isa, Fn fn) {
#if defined(__x86_64__)
  if (isa == Isa::kV4) return isa::RunV4(fn);
  if (isa == Isa::kV3) return isa::RunV3(fn);
#else
  (void)isa;
#endif
  isa::RunBaseline(fn);
}

template <typename Fn>
void OnBestIsa(Fn fn) {
  OnIsa(BestIsa(), fn);
}

}  // namespace onnx_fp8
