// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <library_types.h>

#include <cstdint>

namespace onnx_fp8::emulation {

// Element i of an array of that type.
float LoadFloat(const void* p, cudaDataType type, int64_t i);
// Rounds to nearest even; FP8 saturates.
void StoreFloat(void* p, cudaDataType type, int64_t i, float value);

// To 10 bits of fraction, ties away from zero.
float RoundToTf32(float value);

}  // namespace onnx_fp8::emulation
