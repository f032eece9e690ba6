// SPDX-License-Identifier: Apache-2.0
//
// One mistake each, in a kernel or in code of the host: each must be found. It
// runs in a process of its own, and a device that met it is lost.
#include "tests/cuda/emulation_test/planted_mistakes.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation_test/child.h"
#include "tests/cuda/emulation_test/device_arrays.h"
#include "tests/cuda/emulation_test/lt_product.h"

namespace onnx_fp8::emulation_test {
namespace {

using namespace onnx_fp8::planted;

// Says whether some of 16 schedules make the result wrong.
template <typename F>
void UnderSchedules(F wrong) {
  int count = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    emulation::SetSchedule(seed);
    if (wrong()) ++count;
  }
  std::fprintf(stderr, count > 0 ? "wrong under a schedule\n" : "right\n");
}

bool RowSumsWrong(bool before, bool after) {
  std::vector<float> x(4 * 128), want;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i / 128 + 1);
  for (int row = 0; row < 4; ++row) want.push_back(128.0f * (row + 1));
  float *device = Upload(x), *sums = OnDevice(4);
  cudaStream_t stream = FreeStream();
  RowSums(before, after, device, 4, sums, stream);
  Must(cudaStreamSynchronize(stream));
  return Download(sums, 4) != want;
}

bool AsyncCopyWrong(bool waits) {
  std::vector<float> want;
  for (int i = 0; i < 32; ++i) want.push_back(static_cast<float>(124 - 4 * i));
  float *from = Upload(Numbers(128)), *to = OnDevice(32);
  AsyncCopy(waits, from, to);
  return Download(to, 32) != want;
}

bool ShiftWrong() {
  std::vector<float> want = Numbers(257);
  want.erase(want.begin());
  want.back() = 0;
  float* x = Upload(Numbers(256));
  Shift(x, 256);
  return Download(x, 256) != want;
}

bool UnorderedStreamsWrong() {
  float* x = Upload(std::vector<float>(64, 1.0f));
  cudaStream_t a = FreeStream(), b = FreeStream();
  Add(x, 64, 1.0f, a);
  Must(cudaMemsetAsync(x, 0, 4, b));
  Must(cudaDeviceSynchronize());
  return Download(x, 1)[0] != 0;
}

// The errors of the mistake and of the end of the capture.
void WhileCapturing(void (*mistake)(cudaStream_t stream, cudaStream_t other,
                                    float* x)) {
  cudaStream_t stream = FreeStream(), other = FreeStream();
  float* x = OnDevice(4);
  cudaGraph_t graph;
  Must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  try {
    mistake(stream, other, x);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "while capturing: %s\n", error.what());
  }
  Must(cudaStreamEndCapture(stream, &graph));
}

// Runs it on operands of 64 KiB, A off by some bytes.
void RunProduct(LtProduct product, int offset = 0) {
  constexpr size_t kBytes = 128 * 128 * 4;
  auto a = OnDevice<char>(kBytes), b = OnDevice<char>(kBytes);
  auto d = OnDevice<char>(kBytes), bias = OnDevice<char>(kBytes);
  auto scale = reinterpret_cast<float*>(OnDevice<char>(kBytes));
  if (!product.a_scale) product.a_scale = scale;
  if (!product.b_scale) product.b_scale = scale;
  if (product.bias_type < 0) product.bias_type = CUDA_R_16BF;
  product.bias = bias;
  product.epilogue = CUBLASLT_EPILOGUE_BIAS;
  product.Run(a + offset, b, d, d);
  Must(cudaDeviceSynchronize());
  std::fprintf(stderr, "the product was computed\n");
}

struct Mistake {
  const char* name;
  // In what is printed. Null: this build can't tell.
  const char* plain;
  const char* checked;
  void (*make)();
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

class PlantedMistake : public testing::TestWithParam<Mistake> {};

TEST_P(PlantedMistake, IsFound) {
  const Mistake& mistake = GetParam();
  const char* words = emulation::Checked() ? mistake.checked : mistake.plain;
  if (!words) return;
  std::string text = TextOfChild(mistake.make);
  EXPECT_NE(text.find(words), text.npos) << "printed:\n" << text;
}

std::string NameOf(const testing::TestParamInfo<Mistake>& info) {
  return info.param.name;
}

const Mistake kInKernels[] = {
    {"NoBarrierBeforeARead", "wrong under a schedule",
     "race on shared memory: block 0 thread",
     [] { UnderSchedules([] { return RowSumsWrong(false, true); }); }},
    {"NoBarrierAfterARead", "wrong under a schedule",
     "race on shared memory: block 0 thread",
     [] { UnderSchedules([] { return RowSumsWrong(true, false); }); }},
    {"SharedMemoryThatNobodyWrote", "wrong under a schedule",
     "reads shared memory that no thread wrote",
     [] {
       UnderSchedules([] {
         float* x = OnDevice(64);
         UnwrittenShared(x);
         return Download(x, 64) != std::vector<float>(64, 1.0f);
       });
     }},
    // It reads another row, which a plain build takes for right.
    {"PastTheEndOfASharedRow", nullptr, "index 32 is outside its array",
     [] {
       PastSharedRow(Upload(Numbers(32)), 1);
       Must(cudaDeviceSynchronize());
     }},
    {"PastTheEndOfDynamicSharedMemory", "cudaErrorIllegalAddress",
     "cudaErrorIllegalAddress",
     [] {
       PastDynamicShared(OnDevice(64), 4);
       Must(cudaDeviceSynchronize());
     }},
    {"LaneMissingInAShuffle", "lanes 0000ffff of mask ffffffff",
     "lanes 0000ffff of mask ffffffff",
     [] {
       HalfWarp(Upload(Numbers(32)));
       Must(cudaDeviceSynchronize());
     }},
    {"AsyncCopyThatNobodyWaitsFor", "wrong under a schedule",
     "wrong under a schedule",
     [] { UnderSchedules([] { return AsyncCopyWrong(false); }); }},
    {"BlocksThatReadEachOthersResults", "wrong under a schedule",
     "race on device memory: block", [] { UnderSchedules(ShiftWrong); }},
    {"WritePastAnEndWithoutAGuardNear", "wrote past an end",
     "writes 4 bytes at byte 4000 of device allocation",
     [] {
       NoGuard(OnDevice(1000), 8, 128);
       Must(cudaDeviceSynchronize());
     }},
    {"WritePastAnEnd", "writes byte 4096 of device allocation",
     "writes 4 bytes at byte 4096 of device allocation",
     [] {
       NoGuard(OnDevice(1024), 9, 128);
       Must(cudaDeviceSynchronize());
     }},
    {"ReadOfFreedMemory", "(4096 bytes, freed)", "(4096 bytes, freed)",
     [] {
       float *x = OnDevice(1024), *y = OnDevice(1);
       Must(cudaFree(x));
       OnDevice(1024);  // a device may use the address again
       Read(x, 5, y);
       Must(cudaDeviceSynchronize());
     }},
    // A plain build splits the vector or not.
    {"VectorThatIsNotAligned", nullptr,
     "not aligned to its type: byte 4 of device",
     [] {
       UnalignedVector(Upload(Numbers(64)), OnDevice(32));
       Must(cudaDeviceSynchronize());
     }},
    {"HostMemoryAsAnArgument", "plain host memory", "plain host memory",
     [] {
       float x = 0;
       Add(&x, 1, 1.0f, nullptr);
       Must(cudaDeviceSynchronize());
     }},
    {"EmptyGrid", "cudaErrorInvalidConfiguration",
     "cudaErrorInvalidConfiguration", [] { AddNowhere(OnDevice(1)); }},
};

const Mistake kOfTheHost[] = {
    {"HostReadsDeviceMemory", "the host reads byte 40 of device",
     "the host reads byte 40 of device",
     [] {
       volatile float* x = OnDevice(1024);
       std::fprintf(stderr, "%f\n", static_cast<double>(x[10]));
     }},
    {"HostReadsAResultTooEarly", "the host reads pinned memory",
     "the host reads pinned memory",
     [] {
       float* x = Upload<float>({1, 2, 3});
       volatile float* host = Pinned(3);
       Must(cudaMemcpyAsync(const_cast<float*>(host), x, 12,
                            cudaMemcpyDeviceToHost, FreeStream()));
       std::fprintf(stderr, "%f\n", static_cast<double>(host[0]));
     }},
    {"HostWritesAnInputTooEarly", "the host writes pinned memory",
     "the host writes pinned memory",
     [] {
       float* x = OnDevice(3);
       volatile float* host = Pinned(3);
       for (int i = 0; i < 3; ++i) host[i] = 0;
       Must(cudaMemcpyAsync(x, const_cast<float*>(host), 12,
                            cudaMemcpyHostToDevice, FreeStream()));
       host[0] = 5;
     }},
    {"StreamThatDoesNotWaitForAnother", "wrong under a schedule",
     "wrong under a schedule", [] { UnderSchedules(UnorderedStreamsWrong); }},
    {"AsynchronousCopyOfPageableMemory", "pageable memory", "pageable memory",
     [] {
       std::vector<float> x(3);
       Must(cudaMemcpyAsync(OnDevice(3), x.data(), 12, cudaMemcpyHostToDevice,
                            FreeStream()));
     }},
    {"MallocInACapture", "cudaErrorStreamCaptureUnsupported",
     "cudaErrorStreamCaptureUnsupported",
     [] {
       WhileCapturing([](cudaStream_t, cudaStream_t, float*) { OnDevice(4); });
     }},
    {"SynchronizationInACapture", "cudaErrorStreamCaptureInvalidated",
     "cudaErrorStreamCaptureInvalidated",
     [] {
       WhileCapturing([](cudaStream_t stream, cudaStream_t, float*) {
         Must(cudaStreamSynchronize(stream));
       });
     }},
    {"DefaultStreamInACapture", "cudaErrorStreamCaptureImplicit",
     "cudaErrorStreamCaptureImplicit",
     [] {
       WhileCapturing([](cudaStream_t, cudaStream_t, float* x) {
         Must(cudaMemsetAsync(x, 0, 16, nullptr));
       });
     }},
    {"CaptureThatNeverJoins", "cudaErrorStreamCaptureUnjoined",
     "cudaErrorStreamCaptureUnjoined",
     [] {
       WhileCapturing([](cudaStream_t stream, cudaStream_t other, float* x) {
         cudaEvent_t fork = NewEvent();
         Must(cudaEventRecord(fork, stream));
         Must(cudaStreamWaitEvent(other, fork, 0));
         Must(cudaMemsetAsync(x, 0, 16, other));
       });
     }},
};

const Mistake kInProducts[] = {
    {"NotTransposed", "FP8 on Hopper is TN only", "FP8 on Hopper is TN only",
     [] { RunProduct({.op_a = CUBLAS_OP_N}); }},
    {"LeadingDimension72", "not aligned to 16 bytes", "not aligned to 16 bytes",
     [] { RunProduct({.lda = 72}); }},
    {"K40", "no multiple of 16", "no multiple of 16",
     [] { RunProduct({.k = 40, .lda = 48}); }},
    {"OperandOffBy8Bytes", "less aligned", "less aligned",
     [] { RunProduct({}, 8); }},
    {"E5m2TimesE5m2", "E5M2 times E5M2", "E5M2 times E5M2",
     [] { RunProduct({.a = CUDA_R_8F_E5M2, .b = CUDA_R_8F_E5M2}); }},
    {"FloatBias", "type of the bias", "type of the bias",
     [] { RunProduct({.bias_type = CUDA_R_32F}); }},
    {"ScaleInHostMemory", "plain host memory", "plain host memory",
     [] {
       float scale = 1;
       RunProduct({.a_scale = &scale});
     }},
    {"Blocks128x128Twice", "128x128 blocks for both", "128x128 blocks for both",
     [] { RunProduct({.a_mode = 5, .b_mode = 5}); }},
    {"PastAnEnd", "cublasLtMatmul: A, 81712 bytes",
     "cublasLtMatmul: A, 81712 bytes", [] { RunProduct({.lda = 1296}); }},
};

INSTANTIATE_TEST_SUITE_P(Kernel, PlantedMistake, testing::ValuesIn(kInKernels),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Host, PlantedMistake, testing::ValuesIn(kOfTheHost),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Product, PlantedMistake,
                         testing::ValuesIn(kInProducts), NameOf);

// The same code without the mistakes.
TEST(WithoutMistakes, NothingIsFound) {
  EXPECT_EQ(TextOfChild([] {
              UnderSchedules([] { return RowSumsWrong(true, true); });
            }),
            "right\n");
  EXPECT_EQ(
      TextOfChild([] { UnderSchedules([] { return AsyncCopyWrong(true); }); }),
      "right\n");
  EXPECT_EQ(TextOfChild([] { RunProduct({}); }), "the product was computed\n");
}

// A plain build misses mistakes that only a checked build can tell.
TEST(WithoutChecks, SomeMistakesPass) {
#if defined(__SANITIZE_ADDRESS__)
  return;  // it tells, too
#endif
  if (emulation::Checked()) return;
  EXPECT_EQ(TextOfChild([] {
              PastSharedRow(Upload(Numbers(32)), 1);
              Must(cudaDeviceSynchronize());
            }),
            "");
}

// A device that met a fault is lost: all later calls say so.
TEST(AfterAFault, EveryCallFails) {
  std::string text = TextOfChild([] {
    NoGuard(OnDevice(1024), 9, 128);
    cudaError_t error = cudaDeviceSynchronize();
    void* p = nullptr;
    bool same = cudaMalloc(&p, 1) == error && cudaGetLastError() == error &&
                cudaGetLastError() == error && cudaDeviceSynchronize() == error;
    std::fprintf(stderr, "%s\n", same ? "lost" : "alive");
    Must(error);
  });
  EXPECT_NE(text.find("lost\nerror: cudaErrorIllegalAddress\n"), text.npos)
      << text;
}

}  // namespace
}  // namespace onnx_fp8::emulation_test
