// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/gemm.h"

#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "onnx_fp8/check.h"
#include "onnx_fp8/parallel.h"
#include "providers/cpu/float8_kernels.h"

namespace onnx_fp8 {
namespace {

// Memory for decoded operands. Kept for the thread's next product while it is
// small: a fresh large block costs a page fault per 4 KB.
class Scratch {
 public:
  static constexpr int64_t kKeep = int64_t{1} << 23;  // floats: 32 MiB

  float* Get(int64_t n) {
    if (n > kKeep) {
      large_ = std::make_unique_for_overwrite<float[]>(Size(n));
      return large_.get();
    }
    if (n > size_) {
      kept_ = std::make_unique_for_overwrite<float[]>(Size(n));
      size_ = n;
    }
    return kept_.get();
  }
  void Release() { large_.reset(); }

 private:
  static size_t Size(int64_t n) { return static_cast<size_t>(n); }

  std::unique_ptr<float[]> kept_, large_;
  int64_t size_ = 0;
};

thread_local Scratch scratch_a, scratch_b, scratch_c;

// Gives back what a product needed above Scratch::kKeep.
struct ScratchGuard {
  ~ScratchGuard() {
    scratch_a.Release();
    scratch_b.Release();
    scratch_c.Release();
  }
};

bool IsDecoded(DType dtype) {
  return dtype == DType::kE4M3 || dtype == DType::kE5M2 ||
         dtype == DType::kBFloat16;
}

// An fp32 operand with the values of `x`, of `rows` × `cols` in memory.
GemmOperand Decoded(const GemmOperand& x, int64_t rows, int64_t cols,
                    Scratch& scratch) {
  if (!IsDecoded(x.dtype)) return x;
  GemmOperand y = {.ld = cols, .transposed = x.transposed};
  float* to = scratch.Get(rows * cols);
  y.data = to;
  if (x.ld == cols) {
    DecodeTo(x.dtype, x.data, to, rows * cols);
    return y;
  }
  auto from = static_cast<const uint8_t*>(x.data);
  int64_t row_bytes = x.ld * static_cast<int64_t>(ByteSize(x.dtype));
  for (int64_t i = 0; i < rows; ++i) {
    DecodeTo(x.dtype, from + i * row_bytes, to + i * cols, cols);
  }
  return y;
}

GemmOperand DecodedA(const GemmProblem& p) {
  return p.a.transposed ? Decoded(p.a, p.k, p.m, scratch_a)
                        : Decoded(p.a, p.m, p.k, scratch_a);
}

GemmOperand DecodedB(const GemmProblem& p) {
  return p.b.transposed ? Decoded(p.b, p.n, p.k, scratch_b)
                        : Decoded(p.b, p.k, p.n, scratch_b);
}

CBLAS_TRANSPOSE TransposeOf(const GemmOperand& x) {
  return x.transposed ? CblasTrans : CblasNoTrans;
}

// sum (M,N) = op(a) · op(b) + beta · sum, without epilogue.
void Product(const GemmProblem& p, const GemmOperand& a, const GemmOperand& b,
             float beta, void* sum, int64_t ld) {
  auto i = [](int64_t n) { return static_cast<blasint>(n); };
  if (a.dtype == DType::kDouble) {
    cblas_dgemm(CblasRowMajor, TransposeOf(a), TransposeOf(b), i(p.m), i(p.n),
                i(p.k), 1.0, static_cast<const double*>(a.data), i(a.ld),
                static_cast<const double*>(b.data), i(b.ld), beta,
                static_cast<double*>(sum), i(ld));
  } else {
    cblas_sgemm(CblasRowMajor, TransposeOf(a), TransposeOf(b), i(p.m), i(p.n),
                i(p.k), 1.0f, static_cast<const float*>(a.data), i(a.ld),
                static_cast<const float*>(b.data), i(b.ld), beta,
                static_cast<float*>(sum), i(ld));
  }
}

// c = sum · scale [+ bias] [+ beta · c]; `sum` may be c if beta is 0.
template <typename T>
void Epilogue(const GemmProblem& p, const T* sum, int64_t ld_sum, float beta) {
  T scale = p.scale;
  auto bias = static_cast<const T*>(p.bias);
  int64_t rows_of_16k = std::max<int64_t>(1, 16384 / p.n);
  ParallelFor(p.m, rows_of_16k, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* s = sum + i * ld_sum;
      T* c = static_cast<T*>(p.c) + i * p.ldc;
      if (beta != 0) {
        for (int64_t j = 0; j < p.n; ++j) {
          c[j] = s[j] * scale + (bias ? bias[j] : T{0}) + beta * c[j];
        }
      } else if (bias) {
        for (int64_t j = 0; j < p.n; ++j) c[j] = s[j] * scale + bias[j];
      } else {
        for (int64_t j = 0; j < p.n; ++j) c[j] = s[j] * scale;
      }
    }
  });
}

template <typename T>
void RunAs(const GemmProblem& p, const GemmOperand& a, const GemmOperand& b) {
  T* c = static_cast<T*>(p.c);
  bool plain = p.scale == 1.0f && p.bias == nullptr;
  if (p.k == 0) {
    // BLAS libraries differ on empty sums.
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        T& x = c[i * p.ldc + j];
        x = (p.bias ? static_cast<const T*>(p.bias)[j] : T{0}) +
            (p.beta != 0 ? p.beta * x : T{0});
      }
    }
  } else if (plain || p.beta == 0) {
    Product(p, a, b, p.beta, c, p.ldc);
    if (!plain) Epilogue<T>(p, c, p.ldc, 0);
  } else {
    int64_t floats = p.m * p.n * static_cast<int64_t>(sizeof(T) / 4);
    T* sum = reinterpret_cast<T*>(scratch_c.Get(floats));
    Product(p, a, b, 0, sum, p.n);
    Epilogue<T>(p, sum, p.n, p.beta);
  }
}

void Run(const GemmProblem& p, const GemmOperand& a, const GemmOperand& b) {
  if (a.dtype == DType::kDouble) {
    RunAs<double>(p, a, b);
  } else {
    RunAs<float>(p, a, b);
  }
}

// Checks what input can cause, and tells OpenBLAS the number of threads.
// Returns the problem with ldc filled in.
GemmProblem Prepared(const GemmProblem& problem) {
  GemmProblem p = problem;
  if (p.ldc == 0) p.ldc = p.n;
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  for (int64_t size : {p.m, p.n, p.k, p.a.ld, p.b.ld, p.ldc}) {
    Check(size >= 0 && size <= kMax,
          "[matrix product] expected sizes below 2^31, got ", p.m, " x ", p.k,
          " x ", p.n);
  }
  for (DType dtype : {p.a.dtype, p.b.dtype}) {
    Check(dtype == DType::kFloat || dtype == DType::kDouble || IsDecoded(dtype),
          "[matrix product] expected a float dtype, got ", Name(dtype));
  }
  Check((p.a.dtype == DType::kDouble) == (p.b.dtype == DType::kDouble),
        "[matrix product] expected two double operands or none, got ",
        Name(p.a.dtype), " and ", Name(p.b.dtype));
  // A leading dimension of 0 is legal for an empty matrix, but not in BLAS.
  p.a.ld = std::max<int64_t>(p.a.ld, 1);
  p.b.ld = std::max<int64_t>(p.b.ld, 1);
  if (!omp_in_parallel() && openblas_get_num_threads() != NumThreads()) {
    openblas_set_num_threads(NumThreads());
  }
  return p;
}

GemmOperand Moved(GemmOperand x, int64_t elements) {
  x.data = static_cast<const char*>(x.data) +
           elements * static_cast<int64_t>(ByteSize(x.dtype));
  return x;
}

void RunOne(GemmProblem p, const GemmOffsets& at) {
  ScratchGuard guard;
  int64_t c_size = p.a.dtype == DType::kDouble ? 8 : 4;
  p.a = Moved(p.a, at.a);
  p.b = Moved(p.b, at.b);
  p.c = static_cast<char*>(p.c) + at.c * c_size;
  Run(p, DecodedA(p), DecodedB(p));
}

}  // namespace

void Gemm(const GemmProblem& problem) {
  GemmProblem p = Prepared(problem);
  if (p.m > 0 && p.n > 0) RunOne(p, {});
}

void BatchedGemm(const GemmProblem& problem,
                 std::span<const GemmOffsets> batch) {
  GemmProblem p = Prepared(problem);
  if (p.m == 0 || p.n == 0 || batch.empty()) return;
  auto count = static_cast<int64_t>(batch.size());
  // Below about 10^7 multiplications threads inside one product cost more
  // than they bring; below about 10^4 so does a thread for one product.
  double work = static_cast<double>(p.m) * static_cast<double>(p.n) *
                static_cast<double>(std::max<int64_t>(p.k, 1));
  if (count >= NumThreads() && work < 1e7) {
    auto grain = static_cast<int64_t>(std::max(1.0, 1e4 / work));
    ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RunOne(p, batch[static_cast<size_t>(i)]);
      }
    });
  } else {
    for (const GemmOffsets& at : batch) RunOne(p, at);
  }
}

std::string GemmBackend() {
  std::string config = openblas_get_config();  // "OpenBLAS 0.3.21 DYNAMIC …"
  size_t second = config.find(' ', config.find(' ') + 1);
  return config.substr(0, second) + " (" + openblas_get_corename() + ")";
}

}  // namespace onnx_fp8
