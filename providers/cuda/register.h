// SPDX-License-Identifier: Apache-2.0
// One function per file of kernels, named like the file, as in the CPU's
// register.h; cuda_provider.cc calls them all.
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// ops/
void RegisterActivation(KernelRegistry& r);
void RegisterAttention(KernelRegistry& r);
void RegisterBinary(KernelRegistry& r);
void RegisterCast(KernelRegistry& r);
void RegisterChannelNorm(KernelRegistry& r);
void RegisterConstant(KernelRegistry& r);
void RegisterConv(KernelRegistry& r);
void RegisterEinsum(KernelRegistry& r);
void RegisterGather(KernelRegistry& r);
void RegisterLoss(KernelRegistry& r);
void RegisterLossGrad(KernelRegistry& r);
void RegisterMatMul(KernelRegistry& r);
void RegisterMovement(KernelRegistry& r);
void RegisterNorm(KernelRegistry& r);
void RegisterNormGrad(KernelRegistry& r);
void RegisterOptimizer(KernelRegistry& r);
void RegisterPad(KernelRegistry& r);
void RegisterPool(KernelRegistry& r);
void RegisterRandom(KernelRegistry& r);
void RegisterReduce(KernelRegistry& r);
void RegisterReshape(KernelRegistry& r);
void RegisterResize(KernelRegistry& r);
void RegisterRotary(KernelRegistry& r);
void RegisterScan(KernelRegistry& r);  // ArgMax, ArgMin, CumSum, Hardmax
void RegisterScatter(KernelRegistry& r);
void RegisterSequence(KernelRegistry& r);  // OneHot, TopK, Trilu
void RegisterSoftmax(KernelRegistry& r);
void RegisterUnary(KernelRegistry& r);

// fp8/
void RegisterQuantize(KernelRegistry& r);
void RegisterQuantizeBlock(KernelRegistry& r);
void RegisterQuantizeBlockTranspose(KernelRegistry& r);
void RegisterScaledMatMul(KernelRegistry& r);
void RegisterScaledMatMulBlock(KernelRegistry& r);

}  // namespace onnx_fp8::cuda
