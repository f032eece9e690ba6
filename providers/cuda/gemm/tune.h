// SPDX-License-Identifier: Apache-2.0
//
// Which of several ways to do the same work is the fastest on this GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace onnx_fp8::cuda {

// Whether the stream's work is recorded and not done, so that it has no time.
bool IsCapturing(cudaStream_t stream);

// The fastest of `ways` ways, the first of equals; nullopt: none works.
// `start(i)` adds the work in way i to the stream, and is called several times;
// false: it can't, and the way is passed over. Waits until the work is done.
// REQUIRES: the stream does not capture. Errors: the work's.
std::optional<size_t> FastestOf(size_t ways,
                                const std::function<bool(size_t)>& start,
                                cudaStream_t stream);

}  // namespace onnx_fp8::cuda
