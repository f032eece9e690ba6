// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnx_fp8 {

// Edits the serialised ModelProto of `size` bytes at `data` in ways that leave
// it one: other ops, operands, attributes, dimensions, types; nodes, functions
// and tensors that are copied, moved or lost. What is done follows from `seed`.
// Returns the new size; 0 if the bytes are no model, the result would exceed
// `max_size`, or plain bytes should be changed for once.
size_t MutateModel(uint8_t* data, size_t size, size_t max_size, uint64_t seed);

}  // namespace onnx_fp8
