// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace onnx_fp8::emulation {

// The function that holds an address of code: "RowSums<true>", without its
// namespaces and parameters.
std::string FunctionName(const void* code);

// "RowSums<true> at sums.cu:31". Slow: it runs addr2line.
std::string SourceOf(const void* code);

// The bytes of the static shared memory that the kernel itself declares.
size_t StaticSharedBytes(const void* kernel);

}  // namespace onnx_fp8::emulation
