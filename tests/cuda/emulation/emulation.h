// SPDX-License-Identifier: Apache-2.0
//
// A CUDA runtime and a cuBLASLt without a device, for tests. A test program
// links them in place of the real ones. They are hostile: what a real device
// leaves open is drawn, and what it does in silence is reported.
//
// This header is for tests. Code under test includes the toolkit's headers
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace onnx_fp8::emulation {

// ---- what tests set ---------------------------------------------------------

// The order of threads, of blocks and of streams that no event orders: 0 is the
// natural one, every other seed draws one. At first the environment variable
// ONNX_FP8_CUDA_SCHEDULE gives the seed. REQUIRES: no work is pending.
void SetSchedule(uint64_t seed);
uint64_t Schedule();
// Two seeds with extremes: where no event orders them, all work of the stream
// that was made first comes first, or all work of the stream that was made
// last. If one of two streams lacks a wait for the other, one of these seeds
// runs it too early.
inline constexpr uint64_t kFirstStreamFirst = ~uint64_t{0};
inline constexpr uint64_t kLastStreamFirst = kFirstStreamFirst - 1;

// What the hardware leaves open in numbers, such as the order of a product's
// sums and the last bit of rsqrtf: 0 is plain float. At first
// ONNX_FP8_CUDA_NUMERICS gives the seed.
void SetNumerics(uint64_t seed);
uint64_t Numerics();

// The bytes of device memory: 2 GiB, or ONNX_FP8_CUDA_MEMORY.
void SetMemoryLimit(size_t bytes);
size_t TotalMemory();
size_t FreeMemory();

// The compute capability: 9.0 or `major`.0.
void SetComputeCapability(int major);
int ComputeCapability();

// At first 130000.
void SetCublasLtVersion(size_t version);
size_t CublasLtVersion();

// An algorithm that cuBLASLt's heuristics offer for each product. Each adds in
// another order.
struct ProductAlgorithm {
  uint64_t time = 1;   // of a product, in pieces of work
  bool fails = false;  // the product is refused
};
// The best ones first, by the heuristics. At first there is one.
void SetProductAlgorithms(const std::vector<ProductAlgorithm>& algorithms);
const std::vector<ProductAlgorithm>& ProductAlgorithms();

// CUPTI loses every n-th record of the device's work and counts it; 0: none.
void LoseRecords(size_t every);

// ---- what tests ask ---------------------------------------------------------

// Mistakes so far. Each is also a line on stderr.
int Reports();
// The last line on stderr: of a mistake, or of why cuBLASLt refused a product.
std::string LastReport();

// Calls of a function, such as "cudaStreamSynchronize", since the last reset.
// A launch counts as "cudaLaunchKernel", and a product also as "algorithm 0".
int64_t Calls(const std::string& function);

struct KernelTraffic {
  int64_t launches = 0;
  // Traffic of device memory. Only checked builds count it.
  int64_t bytes_read = 0, bytes_written = 0;
  std::set<uint32_t> streams = {};  // their numbers, also of captured launches
};
// By the kernel's name, such as "AddKernel<float>", since the last reset.
std::map<std::string, KernelTraffic> Traffic();

void ResetCounts();

// Whether this program checks every access (access_checks.h).
bool Checked();

}  // namespace onnx_fp8::emulation
