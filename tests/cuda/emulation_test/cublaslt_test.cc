// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation_test/device_arrays.h"
#include "tests/cuda/emulation_test/lt_product.h"

namespace onnx_fp8::emulation_test {
namespace {

// ---- refusals ---------------------------------------------------------------

// Why the product is refused; "" if it is not.
std::string Refusal(const LtProduct& product) {
  try {
    product.Ask();
  } catch (const Error&) {
    return emulation::LastReport();
  }
  return "";
}

#define EXPECT_REFUSED(product, why)                                 \
  EXPECT_NE(Refusal(LtProduct product).find(why), std::string::npos) \
      << "it says: " << Refusal(LtProduct product)
#define EXPECT_ACCEPTED(product) EXPECT_EQ(Refusal(LtProduct product), "")

// A whole brace list as one argument of a macro.
#define P(...) \
  { __VA_ARGS__ }

const void* const kBias = &kBias;
const auto kScales = reinterpret_cast<const float*>(uintptr_t{4096});

TEST(LtRefusals, ReasonsAreNotReports) {
  int reports = emulation::Reports();
  EXPECT_ACCEPTED(P());
  EXPECT_REFUSED(P(.m = 0), "an empty matrix");
  EXPECT_EQ(emulation::Reports(), reports);
}

TEST(LtRefusals, Fp8IsTnOnly) {
  EXPECT_REFUSED(P(.op_a = CUBLAS_OP_N), "TN only");
  EXPECT_REFUSED(P(.op_b = CUBLAS_OP_T), "TN only");
}

TEST(LtRefusals, Fp8HasMultiplesOf16) {
  EXPECT_REFUSED(P(.m = 24), "no multiple of 16");
  EXPECT_REFUSED(P(.n = 24), "no multiple of 16");
  EXPECT_REFUSED(P(.k = 24, .lda = 32, .ldb = 32), "no multiple of 16");
  EXPECT_REFUSED(P(.ldb = 72), "not aligned to 16 bytes");
  EXPECT_REFUSED(P(.ldd = 66), "not aligned to 16 bytes");
  EXPECT_REFUSED(P(.alignment = 8), "operands that are not aligned");
  EXPECT_ACCEPTED(P(.alignment = 16));
}

TEST(LtRefusals, Fp8Types) {
  EXPECT_ACCEPTED(P(.a = CUDA_R_8F_E5M2));
  EXPECT_ACCEPTED(P(.b = CUDA_R_8F_E5M2));
  EXPECT_REFUSED(P(.a = CUDA_R_8F_E5M2, .b = CUDA_R_8F_E5M2),
                 "E5M2 times E5M2");
  EXPECT_REFUSED(P(.b = CUDA_R_16BF), "one operand is FP8");
  EXPECT_REFUSED(P(.c = CUDA_R_16BF, .d = CUDA_R_8F_E5M2), "into E5M2");
  EXPECT_ACCEPTED(
      P(.a = CUDA_R_8F_E5M2, .c = CUDA_R_16BF, .d = CUDA_R_8F_E5M2));
  EXPECT_REFUSED(P(.c = CUDA_R_16BF), "type of C");
  EXPECT_REFUSED(P(.c = CUDA_R_32F, .d = CUDA_R_8F_E4M3), "type of C");
  EXPECT_ACCEPTED(P(.c = CUDA_R_16F, .d = CUDA_R_8F_E4M3));
  EXPECT_REFUSED(P(.compute = CUBLAS_COMPUTE_32F_FAST_TF32), "computes in 32F");
}

TEST(LtRefusals, Fp8Bias) {
  constexpr uint32_t kBiasEpilogue = CUBLASLT_EPILOGUE_BIAS;
  EXPECT_REFUSED(P(.epilogue = kBiasEpilogue), "without a bias");
  EXPECT_ACCEPTED(P(.epilogue = kBiasEpilogue, .bias = kBias));
  EXPECT_REFUSED(
      P(.epilogue = kBiasEpilogue, .bias_type = CUDA_R_16F, .bias = kBias),
      "type of the bias");
  EXPECT_ACCEPTED(P(.c = CUDA_R_16F, .d = CUDA_R_16F, .epilogue = kBiasEpilogue,
                    .bias_type = CUDA_R_16F, .bias = kBias));
  EXPECT_REFUSED(P(.epilogue = CUBLASLT_EPILOGUE_GELU), "an epilogue other");
}

TEST(LtRefusals, Fp8Scales) {
  EXPECT_REFUSED(P(.a_mode = 2, .b_mode = 2), "Hopper does not have");
  EXPECT_REFUSED(P(.a_mode = 3, .b_mode = 0), "do not go together");
  EXPECT_REFUSED(P(.a_mode = 4, .b_mode = 3), "do not go together");
  EXPECT_REFUSED(P(.a_mode = 5, .b_mode = 5), "128x128 blocks for both");
  EXPECT_REFUSED(P(.a_mode = 3, .b_mode = 3), "scales are missing");
  EXPECT_ACCEPTED(
      P(.a_mode = 4, .b_mode = 5, .a_scale = kScales, .b_scale = kScales));
  EXPECT_REFUSED(
      P(.a_mode = 4, .b_mode = 5, .a_scale = kScales, .b_scale = kScales + 1),
      "scales of blocks");
  EXPECT_REFUSED(P(.c = CUDA_R_16BF, .d = CUDA_R_8F_E4M3, .a_mode = 3,
                   .b_mode = 3, .a_scale = kScales, .b_scale = kScales),
                 "an FP8 result of many scales");
  EXPECT_REFUSED(P(.d_scale = kScales), "D's scale or amax");
}

TEST(LtRefusals, ScalesOfBlackwell) {
  emulation::SetComputeCapability(10);
  EXPECT_ACCEPTED(
      P(.a_mode = 2, .b_mode = 2, .a_scale = kScales, .b_scale = kScales));
  EXPECT_REFUSED(P(.k = 48, .a_mode = 2, .b_mode = 2), "a part of a block");
  EXPECT_REFUSED(P(.a_mode = 2), "do not go together");
  EXPECT_REFUSED(P(.a_mode = 3, .b_mode = 3), "Blackwell does not have");
  EXPECT_REFUSED(
      P(.a_mode = 2, .b_mode = 2, .a_scale = kScales, .b_scale = kScales + 1),
      "not aligned to 16 bytes");
  emulation::SetComputeCapability(9);
}

TEST(LtRefusals, WideTypes) {
  EXPECT_ACCEPTED(P(.a = CUDA_R_32F, .b = CUDA_R_32F));
  EXPECT_ACCEPTED(P(.m = 5, .n = 3, .k = 7, .op_a = CUBLAS_OP_N,
                    .a = CUDA_R_16BF, .b = CUDA_R_16BF, .alignment = 2));
  EXPECT_REFUSED(P(.a = CUDA_R_32F, .b = CUDA_R_16BF), "types that do not go");
  EXPECT_REFUSED(
      P(.a = CUDA_R_32F, .b = CUDA_R_32F, .c = CUDA_R_16BF, .d = CUDA_R_16BF),
      "types that do not go");
  EXPECT_REFUSED(P(.a = CUDA_R_32F, .b = CUDA_R_32F, .a_scale = kScales),
                 "scales where no operand");
  EXPECT_REFUSED(P(.a = CUDA_R_16BF, .b = CUDA_R_16BF,
                   .compute = CUBLAS_COMPUTE_32F_FAST_TF32),
                 "compute or scale type");
  EXPECT_REFUSED(P(.a = CUDA_R_64F, .b = CUDA_R_64F), "not emulated");
}

TEST(LtRefusals, Shapes) {
  EXPECT_REFUSED(P(.lda = 48), "below the number of rows");
  EXPECT_REFUSED(P(.order = CUBLASLT_ORDER_ROW), "row order");
  EXPECT_REFUSED(P(.batch = 2, .stride_d = 4096), "FP8 in batches");
  EXPECT_REFUSED(
      P(.a = CUDA_R_32F, .b = CUDA_R_32F, .batch = 2, .stride_d = 4095),
      "results of a batch that overlap");
  EXPECT_REFUSED(P(.a = CUDA_R_32F, .b = CUDA_R_32F, .batch = 2, .batch_c = 3,
                   .stride_d = 4096),
                 "batch counts");
}

#undef EXPECT_REFUSED
#undef EXPECT_ACCEPTED
#undef P

// What the call itself refuses, of a product that has an algorithm.
TEST(LtRefusals, OfTheCall) {
  auto a = OnDevice<char>(1 << 16), d = OnDevice<char>(1 << 16);
  auto workspace = OnDevice<char>(1 << 17);
  auto why = [&](const LtProduct& p, void* A, void* C, void* D) {
    try {
      p.Run(A, a, C, D);
    } catch (const Error&) {
      return emulation::LastReport();
    }
    return std::string();
  };
  auto has = [](const std::string& text, const char* part) {
    return text.find(part) != text.npos;
  };
  EXPECT_TRUE(has(why({}, a + 16, d, d), "less aligned"));
  EXPECT_EQ(why({.alignment = 16}, a + 16, d, d), "");
  EXPECT_TRUE(has(why({}, a, a, a), "overlaps an operand"));
  EXPECT_TRUE(has(why({}, a, d + 256, d), "partly overlap"));
  LtProduct with = {.workspace_bytes = 1 << 16, .workspace = workspace + 16};
  EXPECT_TRUE(has(why(with, a, d, d), "not aligned to 256 bytes"));
  with.workspace = workspace;
  EXPECT_EQ(why(with, a, d, d), "");
  with.stream = FreeStream();
  EXPECT_TRUE(has(why(with, a, d, d), "that another stream uses"));
  with.workspace = workspace + (1 << 16);
  EXPECT_EQ(why(with, a, d, d), "");
  Must(cudaDeviceSynchronize());
  std::vector<char> used = Download(workspace, 1 << 17);
  EXPECT_EQ(used, std::vector<char>(1 << 17, '\xFF'));
}

// ---- products ---------------------------------------------------------------

// Small integers, so that every sum is exact.
float ValueAt(int64_t i) { return static_cast<float>((i * 37 + 11) % 9 - 4); }

std::vector<float> Values(int64_t n, int64_t from = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(ValueAt(from + i));
  return values;
}

template <typename T>
std::vector<T> As(const std::vector<float>& values) {
  std::vector<T> result;
  for (float x : values) result.push_back(T(x));
  return result;
}

template <typename T>
std::vector<float> Floats(const std::vector<T>& values) {
  std::vector<float> result;
  for (T x : values) result.push_back(static_cast<float>(x));
  return result;
}

// op(x) at (i, j) of a column-major matrix.
float At(const std::vector<float>& x, int64_t offset, int ld, bool transposed,
         int64_t i, int64_t j) {
  if (transposed) std::swap(i, j);
  return x[static_cast<size_t>(offset + j * ld + i)];
}

// alpha · op(a) · op(b) + beta · c (+ bias), in its place in memory.
std::vector<float> Reference(const LtProduct& p, const std::vector<float>& a,
                             const std::vector<float>& b, std::vector<float> c,
                             const std::vector<float>& bias = {}) {
  for (int64_t g = 0; g < p.batch; ++g) {
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        float sum = 0;
        for (int64_t l = 0; l < p.k; ++l) {
          sum += At(a, g * p.stride_a, p.lda, p.op_a == CUBLAS_OP_T, i, l) *
                 At(b, g * p.stride_b, p.ldb, p.op_b == CUBLAS_OP_T, l, j);
        }
        float& x = c[static_cast<size_t>(g * p.stride_d + j * p.ldd + i)];
        x = p.alpha * sum + (p.beta == 0 ? 0 : p.beta * x);
        if (!bias.empty()) x += bias[static_cast<size_t>(i)];
      }
    }
  }
  return c;
}

// One product with all four transposes, in place on C, with gaps after columns.
template <typename T>
void CheckTransposes(cudaDataType type, float alpha, float beta) {
  for (auto op_a : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (auto op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      LtProduct p = {.m = 21, .n = 13, .k = 35};
      p.op_a = op_a;
      p.op_b = op_b;
      p.a = p.b = p.c = p.d = type;
      p.lda = p.ldb = p.ldc = p.ldd = 40;
      p.alpha = alpha;
      p.beta = beta;
      std::vector<float> a = Values(1600), b = Values(1600, 3),
                         c = Values(1600);
      T *A = Upload(As<T>(a)), *B = Upload(As<T>(b)), *D = Upload(As<T>(c));
      p.Run(A, B, D, D);
      std::vector<float> want = Floats(As<T>(Reference(p, a, b, c)));
      EXPECT_EQ(Floats(Download(D, 1600)), want);
    }
  }
}

TEST(LtProducts, AllTransposes) {
  CheckTransposes<float>(CUDA_R_32F, 1, 0);
  CheckTransposes<float>(CUDA_R_32F, 0.5f, 1);
  CheckTransposes<__nv_bfloat16>(CUDA_R_16BF, 1, 0);
  CheckTransposes<__half>(CUDA_R_16F, 2, 1);
}

TEST(LtProducts, Batches) {
  LtProduct p = {
      .m = 5, .n = 6, .k = 7, .lda = 7, .ldb = 7, .ldc = 5, .ldd = 5};
  p.a = p.b = CUDA_R_32F;
  p.batch = 3;
  p.stride_a = 0;  // the same for all
  p.stride_b = 50;
  p.stride_c = p.stride_d = 30;
  std::vector<float> a = Values(35), b = Values(150), c(90);
  float *A = Upload(a), *B = Upload(b), *D = Upload(c);
  p.Run(A, B, D, D);
  EXPECT_EQ(Download(D, 90), Reference(p, a, b, c));
}

TEST(LtProducts, NanInCHasNoEffectWithoutBeta) {
  LtProduct p = {
      .m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .ldd = 2};
  p.a = p.b = CUDA_R_32F;
  float *A = Upload(Values(4)), *B = Upload(Values(4)), *D = OnDevice(4);
  p.Run(A, B, D, D);
  EXPECT_EQ(Download(D, 4),
            Reference(p, Values(4), Values(4), std::vector<float>(4)));
}

TEST(LtProducts, Tf32RoundsOperands) {
  LtProduct p = {.m = 1, .n = 1, .k = 1};
  p.a = p.b = CUDA_R_32F;
  float *A = Upload<float>({1 + 0x1p-11f}), *B = Upload<float>({1 + 0x1p-12f});
  float* D = OnDevice(1);
  p.Run(A, B, D, D);
  EXPECT_EQ(Download(D, 1)[0], (1 + 0x1p-11f) * (1 + 0x1p-12f));
  p.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  p.Run(A, B, D, D);
  EXPECT_EQ(Download(D, 1)[0], 1 + 0x1p-10f);
}

struct Fp8Operands {
  std::vector<float> a, b;
  __nv_fp8_e4m3* A;
  __nv_fp8_e5m2* B;
};

// (k, m) and (k, n), column-major.
Fp8Operands MakeFp8(int m, int n, int k) {
  Fp8Operands o = {Values(int64_t{k} * m), Values(int64_t{k} * n, 5), {}, {}};
  o.A = Upload(As<__nv_fp8_e4m3>(o.a));
  o.B = Upload(As<__nv_fp8_e5m2>(o.b));
  return o;
}

TEST(LtProducts, Fp8WithScalesAndBias) {
  LtProduct p = {.m = 48, .n = 16, .k = 64, .lda = 64, .ldb = 64, .ldc = 48};
  p.ldd = 48;
  p.b = CUDA_R_8F_E5M2;
  Fp8Operands o = MakeFp8(p.m, p.n, p.k);
  std::vector<float> bias = Values(48);
  p.epilogue = CUBLASLT_EPILOGUE_BIAS;
  p.bias = Upload(As<__nv_bfloat16>(bias));
  p.a_scale = Upload<float>({2});
  p.b_scale = Upload<float>({0.25f});
  float* D = OnDevice(48 * 16);
  p.Run(o.A, o.B, D, D);
  LtProduct scaled = p;
  scaled.alpha = 0.5f;
  EXPECT_EQ(Download(D, 48 * 16),
            Reference(scaled, o.a, o.b, std::vector<float>(48 * 16), bias));
}

TEST(LtProducts, Fp8IntoFp8MeasuresItsAmax) {
  LtProduct p = {.m = 16, .n = 16, .k = 16, .lda = 16, .ldb = 16, .ldc = 16};
  p.ldd = 16;
  p.b = CUDA_R_8F_E5M2;
  p.c = CUDA_R_16BF;
  p.d = CUDA_R_8F_E4M3;
  p.d_scale = Upload<float>({0.5f});
  p.amax = OnDevice(1);
  Fp8Operands o = MakeFp8(16, 16, 16);
  auto C = OnDevice<__nv_bfloat16>(256);
  auto D = OnDevice<__nv_fp8_e4m3>(256);
  p.Run(o.A, o.B, C, D);
  std::vector<float> want = Reference(p, o.a, o.b, std::vector<float>(256));
  float amax = 0;
  for (float& x : want) {
    amax = std::max(amax, std::fabs(x));
    x = static_cast<float>(__nv_fp8_e4m3(x * 0.5f));
  }
  EXPECT_EQ(Floats(Download(D, 256)), want);
  EXPECT_EQ(Download(p.amax, 1)[0], amax);
}

TEST(LtProducts, Fp8WithAScalePerRow) {
  LtProduct p = {.m = 16, .n = 32, .k = 16, .lda = 16, .ldb = 16, .ldc = 16};
  p.ldd = 16;
  p.b = CUDA_R_8F_E5M2;
  p.a_mode = p.b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  p.a_scale = Upload(Numbers(16));
  p.b_scale = Upload(Numbers(32));
  Fp8Operands o = MakeFp8(16, 32, 16);
  float* D = OnDevice(512);
  p.Run(o.A, o.B, D, D);
  std::vector<float> want = Reference(p, o.a, o.b, std::vector<float>(512));
  for (int i = 0; i < 512; ++i)
    want[i] *= static_cast<float>(i % 16 * (i / 16));
  EXPECT_EQ(Download(D, 512), want);
}

// 1x128 blocks of A's rows, 128x128 blocks of B: two blocks of k.
TEST(LtProducts, Fp8WithScalesOfBlocks) {
  LtProduct p = {
      .m = 16, .n = 144, .k = 256, .lda = 256, .ldb = 256, .ldc = 16};
  p.ldd = 16;
  p.b = CUDA_R_8F_E5M2;
  p.a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  p.b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  std::vector<float> a_scale, b_scale = {1, 2, 0, 0, 4, 8, 0, 0};
  for (int i = 0; i < 32; ++i) a_scale.push_back(static_cast<float>(i % 3 + 1));
  p.a_scale = Upload(a_scale);
  p.b_scale = Upload(b_scale);
  Fp8Operands o = MakeFp8(16, 144, 256);
  float* D = OnDevice(16 * 144);
  p.Run(o.A, o.B, D, D);
  for (int l = 0; l < 256; ++l) {
    for (int i = 0; i < 16; ++i) o.a[i * 256 + l] *= a_scale[l / 128 * 16 + i];
    for (int j = 0; j < 144; ++j) {
      o.b[j * 256 + l] *= b_scale[j / 128 * 4 + l / 128];
    }
  }
  EXPECT_EQ(Download(D, 16 * 144),
            Reference(p, o.a, o.b, std::vector<float>(16 * 144)));
}

TEST(LtProducts, NumericsChangeTheOrderOfSums) {
  LtProduct p = {.m = 16, .n = 16, .k = 512};
  p.a = p.b = CUDA_R_32F;
  std::vector<float> values;
  for (int i = 0; i < 16 * 512; ++i) {
    values.push_back(std::sin(static_cast<float>(i)));
  }
  float *A = Upload(values), *B = Upload(values), *D = OnDevice(256);
  auto under = [&](uint64_t seed) {
    emulation::SetNumerics(seed);
    p.Run(A, B, D, D);
    std::vector<float> result = Download(D, 256);
    emulation::SetNumerics(0);
    return result;
  };
  std::vector<float> plain = under(0), other = under(1);
  EXPECT_NE(plain, other);
  EXPECT_EQ(other, under(1));
  for (int i = 0; i < 256; ++i) EXPECT_NEAR(plain[i], other[i], 1e-3);
}

TEST(LtAlgorithms, DifferInOrderAndTime) {
  emulation::SetProductAlgorithms({{2}, {7}, {1, true}});
  LtProduct p = {.m = 16, .n = 16, .k = 512};
  p.a = p.b = CUDA_R_32F;
  std::vector<float> values;
  for (int i = 0; i < 16 * 512; ++i) {
    values.push_back(std::sin(static_cast<float>(i)));
  }
  float *A = Upload(values), *B = Upload(values), *D = OnDevice(256);
  cudaEvent_t begin = nullptr, end = nullptr;
  Must(cudaEventCreate(&begin));
  Must(cudaEventCreate(&end));
  auto of = [&](int algorithm, float milliseconds) {
    Must(cudaEventRecord(begin));
    p.algorithm = algorithm;
    p.Run(A, B, D, D);
    Must(cudaEventRecord(end));
    std::vector<float> result = Download(D, 256);
    float elapsed = 0;
    Must(cudaEventElapsedTime(&elapsed, begin, end));
    EXPECT_NEAR(elapsed, milliseconds, 1e-6);
    return result;
  };
  std::vector<float> first = of(0, 0.03f), second = of(1, 0.08f);
  EXPECT_NE(first, second);
  for (int i = 0; i < 256; ++i) EXPECT_NEAR(first[i], second[i], 1e-3);
  p.algorithm = 2;
  EXPECT_THROW(p.Run(A, B, D, D), Error);
  EXPECT_NE(emulation::LastReport().find("an algorithm that fails"),
            std::string::npos);
  emulation::SetProductAlgorithms({{.time = 1}});
  Must(cudaEventDestroy(begin));
  Must(cudaEventDestroy(end));
}

}  // namespace
}  // namespace onnx_fp8::emulation_test
