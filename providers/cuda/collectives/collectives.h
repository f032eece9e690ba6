// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// AllReduce, AllGather, ReduceScatter and Broadcast.
void RegisterCollectives(KernelRegistry& r);

}  // namespace onnx_fp8::cuda
