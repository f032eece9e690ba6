// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/double.h"

#include <algorithm>
#include <vector>

#include "base/parallel.h"

namespace onnx_fp8 {

// Row i of c is the sum over k of a(i,k) times row k of b: the inner loop runs
// along memory if b is not transposed.
void DoubleGemm(const GemmProblem& p) {
  auto a = static_cast<const double*>(p.a.data);
  auto b = static_cast<const double*>(p.b.data);
  auto c = static_cast<double*>(p.c);
  auto bias = static_cast<const double*>(p.bias);
  int64_t a_i = p.a.transposed ? 1 : p.a.ld, a_k = p.a.transposed ? p.a.ld : 1;
  int64_t b_k = p.b.transposed ? 1 : p.b.ld, b_j = p.b.transposed ? p.b.ld : 1;
  int64_t work = std::max<int64_t>(1, p.n * p.k);
  ParallelFor(p.m, std::max<int64_t>(1, 65536 / work),
              [&](int64_t begin, int64_t end) {
                std::vector<double> row(static_cast<size_t>(p.n));
                for (int64_t i = begin; i < end; ++i) {
                  std::fill(row.begin(), row.end(), 0.0);
                  for (int64_t k = 0; k < p.k; ++k) {
                    double x = a[i * a_i + k * a_k];
                    const double* from = b + k * b_k;
                    if (b_j == 1) {
                      for (int64_t j = 0; j < p.n; ++j)
                        row[size_t(j)] += x * from[j];
                    } else {
                      for (int64_t j = 0; j < p.n; ++j)
                        row[size_t(j)] += x * from[j * b_j];
                    }
                  }
                  double* to = c + i * p.ldc;
                  for (int64_t j = 0; j < p.n; ++j) {
                    double y = row[size_t(j)];
                    if (p.accumulate) y += to[j];
                    y = y * p.scale + (bias ? bias[j] : 0.0);
                    to[j] = p.add ? to[j] + y : y;
                  }
                }
              });
}

}  // namespace onnx_fp8
