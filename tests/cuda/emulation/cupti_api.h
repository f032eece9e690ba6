// SPDX-License-Identifier: Apache-2.0
//
// CUPTI of the emulated device: its functions for records of activities, by
// their names without "cupti". Records come in an order that the schedule
// draws, in buffers of any length.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::emulation {

// A piece of work is done.
void NoteActivity(const Op& op);

namespace cupti {

using RequestBuffer = void (*)(uint8_t** buffer, size_t* size, size_t* records);
using CompleteBuffer = void (*)(void* context, uint32_t stream, uint8_t* buffer,
                                size_t size, size_t valid);

int GetTimestamp(uint64_t* nanoseconds);
int GetResultString(int result, const char** text);
int ActivityRegisterCallbacks(RequestBuffer request, CompleteBuffer complete);
int ActivityEnable(uint32_t kind);
int ActivityDisable(uint32_t kind);
int ActivityFlushAll(uint32_t flag);
int ActivityGetNextRecord(uint8_t* buffer, size_t valid, void** record);
int ActivityGetNumDroppedRecords(void* context, uint32_t stream,
                                 size_t* dropped);

}  // namespace cupti
}  // namespace onnx_fp8::emulation
