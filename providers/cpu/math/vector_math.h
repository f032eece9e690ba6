// SPDX-License-Identifier: Apache-2.0
//
// Loops over arrays of n elements, on one thread: callers split the work. Loops
// over floats are vectorized for the machine on which they run and give the
// same bits on every machine.
#pragma once

#include <cstdint>

namespace onnx_fp8 {

// y[i] = e^x[i], within 0.52 ulp for floats (elementary.h); y may be x.
void VectorExp(const float* x, float* y, int64_t n);
void VectorExp(const double* x, double* y, int64_t n);

// Largest element; NaN if there is one, -infinity if n is 0.
float VectorMax(const float* x, int64_t n);
double VectorMax(const double* x, int64_t n);

// y[i] = e^(x[i] - shift), for floats within 2 ulp; returns the sum of all
// y[i], computed in double. y may be null if only the sum is wanted.
double VectorExpShifted(const float* x, float shift, float* y, int64_t n);
double VectorExpShifted(const double* x, double shift, double* y, int64_t n);

// z[i] = x[i] y[i]; z may be an operand.
void VectorMultiply(const float* x, const float* y, float* z, int64_t n);

// Sum of x[i] y[i], in double.
double VectorDot(const float* x, const float* y, int64_t n);
double VectorDot(const double* x, const double* y, int64_t n);

}  // namespace onnx_fp8
