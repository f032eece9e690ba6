// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnx_fp8 {

// Edits the serialized ModelProto of `size` bytes at `data` in ways that keep
// it a ModelProto: other ops, operands, attributes, dimensions, types; nodes,
// functions and tensors that are copied, moved or removed. `seed` decides the
// edits. Returns the new size; 0 if the bytes are no model, if the result would
// exceed `max_size`, or if this time plain bytes should be changed.
size_t MutateModel(uint8_t* data, size_t size, size_t max_size, uint64_t seed);

}  // namespace onnx_fp8
