// SPDX-License-Identifier: Apache-2.0
// One function per file of kernels, named like the file; cpu_provider.cc calls
// them all. A new op needs a kernel in the file of its family and a row in the
// Register function of that file.
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8 {

// ops/: the ops of ONNX, and our ops that replace several of them.
void RegisterActivation(KernelRegistry& r);
void RegisterAttention(KernelRegistry& r);
void RegisterBinary(KernelRegistry& r);
void RegisterCast(KernelRegistry& r);
void RegisterChannelNorm(KernelRegistry& r);  // BatchNormalization, …
void RegisterCollectives(KernelRegistry& r);
void RegisterConstant(KernelRegistry& r);  // Shape, Range, …
void RegisterConv(KernelRegistry& r);
void RegisterEinsum(KernelRegistry& r);
void RegisterGather(KernelRegistry& r);
void RegisterGridSample(KernelRegistry& r);
void RegisterIntegerProduct(KernelRegistry& r);
void RegisterLoss(KernelRegistry& r);
void RegisterMatMul(KernelRegistry& r);
void RegisterMovement(KernelRegistry& r);
void RegisterNorm(KernelRegistry& r);
void RegisterOptimizer(KernelRegistry& r);
void RegisterPad(KernelRegistry& r);
void RegisterPool(KernelRegistry& r);
void RegisterQuantizeLinear(KernelRegistry& r);
void RegisterRandom(KernelRegistry& r);
void RegisterRecurrent(KernelRegistry& r);
void RegisterReduce(KernelRegistry& r);
void RegisterReshape(KernelRegistry& r);
void RegisterResize(KernelRegistry& r);
void RegisterRotary(KernelRegistry& r);
void RegisterScan(KernelRegistry& r);  // ArgMax, ArgMin, CumSum
void RegisterScatter(KernelRegistry& r);
void RegisterSequence(KernelRegistry& r);  // OneHot, TopK, …
void RegisterSoftmax(KernelRegistry& r);
void RegisterUnary(KernelRegistry& r);

// fp8/: ops that quantize, and products of quantized operands.
void RegisterDequantizeBlock(KernelRegistry& r);
void RegisterQuantize(KernelRegistry& r);
void RegisterQuantizeBlock(KernelRegistry& r);
void RegisterScaledMatMul(KernelRegistry& r);
void RegisterScaledMatMulBlock(KernelRegistry& r);

}  // namespace onnx_fp8
