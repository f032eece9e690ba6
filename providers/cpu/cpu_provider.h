// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "graph/evaluator.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// Runs on any machine; host memory, the process' one thread pool.
std::unique_ptr<ExecutionProvider> MakeCpuProvider();

// All CPU kernels; lives as long as the process.
const KernelRegistry& CpuKernels();

// Runs single nodes with the CPU kernels.
std::unique_ptr<Evaluator> MakeCpuEvaluator();

}  // namespace onnx_fp8
