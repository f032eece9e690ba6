// SPDX-License-Identifier: Apache-2.0
#pragma once

// Before a loop that reads nothing that an earlier iteration wrote: compilers
// vectorize it without a test of whether its arrays overlap. A result may be
// an operand.
#if defined(__clang__)
#define ONNX_FP8_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define ONNX_FP8_IVDEP _Pragma("GCC ivdep")
#endif
