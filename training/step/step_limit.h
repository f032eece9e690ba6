// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// How much memory a step may need: its state, its batch, constants and outputs,
// its arena and the reserve.
struct StepLimit {
  size_t bytes;
  // On a device: what its context, the libraries of kernels and of ranks, and
  // recorded steps take beside the plan.
  size_t reserve;
};

inline constexpr size_t kDeviceReserve = size_t{1} << 30;

// "74GiB", "80GB", "512MiB", "1.5GiB", or a number of bytes. Errors:
// OptionError for other text, and for 0.
size_t ParseMemory(const std::string& text);

// Whether the backward computes again what a search chooses.
bool RecomputesAutomatically(const SessionOptions& options);

// The limit of the options `memory` and `recompute`; nullopt: they ask for
// none. `available`: the memory that there is, for `memory` auto; 0: not known.
// Errors: ParseMemory's; OptionError: auto, and nobody knows the memory.
std::optional<StepLimit> StepLimitOf(const SessionOptions& options,
                                     Device device,
                                     const std::function<size_t()>& available);

}  // namespace onnx_fp8
