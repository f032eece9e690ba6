// SPDX-License-Identifier: Apache-2.0
//
// One function per file of kernels; provider.cc calls them all. A new op is a
// kernel in its family's file and a row in that family's Register function.
#pragma once

#include "providers/kernel.h"

namespace onnx_fp8 {

void RegisterActivation(KernelRegistry& r);  // activation.cc
void RegisterAttention(KernelRegistry& r);   // attention.cc
void RegisterBinary(KernelRegistry& r);      // binary.cc
void RegisterCast(KernelRegistry& r);        // cast.cc
void RegisterConstant(KernelRegistry& r);    // constant.cc: Shape, Range, …
void RegisterConv(KernelRegistry& r);        // conv.cc
void RegisterDequantizeBlock(KernelRegistry& r);    // dequantize_block.cc
void RegisterEinsum(KernelRegistry& r);             // einsum.cc
void RegisterGather(KernelRegistry& r);             // gather.cc
void RegisterGridSample(KernelRegistry& r);         // grid_sample.cc
void RegisterIntegerProduct(KernelRegistry& r);     // integer_product.cc
void RegisterLoss(KernelRegistry& r);               // loss.cc
void RegisterMatMul(KernelRegistry& r);             // matmul.cc
void RegisterMovement(KernelRegistry& r);           // movement.cc
void RegisterNorm(KernelRegistry& r);               // norm.cc
void RegisterOptimizer(KernelRegistry& r);          // optimizer.cc
void RegisterPad(KernelRegistry& r);                // pad.cc
void RegisterPool(KernelRegistry& r);               // pool.cc
void RegisterQuantize(KernelRegistry& r);           // quantize.cc
void RegisterQuantizeLinear(KernelRegistry& r);     // quantize_linear.cc
void RegisterQuantizeBlock(KernelRegistry& r);      // quantize_block.cc
void RegisterRandom(KernelRegistry& r);             // random.cc
void RegisterRecurrent(KernelRegistry& r);          // recurrent.cc
void RegisterReduce(KernelRegistry& r);             // reduce.cc
void RegisterReshape(KernelRegistry& r);            // reshape.cc
void RegisterResize(KernelRegistry& r);             // resize.cc
void RegisterRotary(KernelRegistry& r);             // rotary.cc
void RegisterScaledMatMul(KernelRegistry& r);       // scaled_matmul.cc
void RegisterScaledMatMulBlock(KernelRegistry& r);  // scaled_matmul_block.cc
void RegisterScatter(KernelRegistry& r);            // scatter.cc
void RegisterSequence(KernelRegistry& r);  // sequence.cc: OneHot, TopK, …
void RegisterSoftmax(KernelRegistry& r);   // softmax.cc
void RegisterUnary(KernelRegistry& r);     // unary.cc

}  // namespace onnx_fp8
