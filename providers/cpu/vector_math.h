// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions over arrays: y[i] = f(x[i]), i < n. The float ones are
// vectorised for the machine they run on, give the same bits on every machine
// and are within 0.52 ulp (elementary.h); the double ones are the C++
// library's. y may be x. One thread: callers split the work.
#pragma once

#include <cstdint>

namespace onnx_fp8 {

void VectorExp(const float* x, float* y, int64_t n);
void VectorExp(const double* x, double* y, int64_t n);
void VectorLog(const float* x, float* y, int64_t n);
void VectorLog(const double* x, double* y, int64_t n);
void VectorTanh(const float* x, float* y, int64_t n);
void VectorTanh(const double* x, double* y, int64_t n);
void VectorSigmoid(const float* x, float* y, int64_t n);
void VectorSigmoid(const double* x, double* y, int64_t n);
void VectorErf(const float* x, float* y, int64_t n);
void VectorErf(const double* x, double* y, int64_t n);

// Largest element; NaN if there is one, -infinity if n is 0.
float VectorMax(const float* x, int64_t n);
double VectorMax(const double* x, int64_t n);

// y[i] = e^(x[i] - shift), for floats within 2 ulp; returns the sum of all
// y[i], summed in double. y may be null: only the sum is wanted.
double VectorExpShifted(const float* x, float shift, float* y, int64_t n);
double VectorExpShifted(const double* x, double shift, double* y, int64_t n);

// z[i] = x[i] y[i]; z may be an operand.
void VectorMultiply(const float* x, const float* y, float* z, int64_t n);

// Sum of x[i] y[i], in double.
double VectorDot(const float* x, const float* y, int64_t n);
double VectorDot(const double* x, const double* y, int64_t n);

}  // namespace onnx_fp8
