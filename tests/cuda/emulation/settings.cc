// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/settings.h"

#include <cstdlib>

namespace onnx_fp8::emulation {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 0) : otherwise;
}

struct Settings {
  uint64_t schedule = FromEnvironment("ONNX_FP8_CUDA_SCHEDULE", 0);
  uint64_t numerics = FromEnvironment("ONNX_FP8_CUDA_NUMERICS", 0);
  uint64_t memory = FromEnvironment("ONNX_FP8_CUDA_MEMORY", uint64_t{2} << 30);
  uint64_t random = schedule;
  size_t cublaslt = 130000;
  int capability = 9;
  std::vector<ProductAlgorithm> algorithms = {{.time = 1}};
};

Settings& TheSettings() {
  static Settings settings;
  return settings;
}

}  // namespace

void SetSchedule(uint64_t seed) {
  TheSettings().schedule = TheSettings().random = seed;
}

uint64_t Schedule() { return TheSettings().schedule; }

void SetNumerics(uint64_t seed) { TheSettings().numerics = seed; }

uint64_t Numerics() { return TheSettings().numerics; }

void SetMemoryLimit(size_t bytes) { TheSettings().memory = bytes; }

size_t TotalMemory() { return TheSettings().memory; }

void SetComputeCapability(int major) { TheSettings().capability = major; }

int ComputeCapability() { return TheSettings().capability; }

void SetCublasLtVersion(size_t version) { TheSettings().cublaslt = version; }

size_t CublasLtVersion() { return TheSettings().cublaslt; }

void SetProductAlgorithms(const std::vector<ProductAlgorithm>& algorithms) {
  TheSettings().algorithms = algorithms;
}

const std::vector<ProductAlgorithm>& ProductAlgorithms() {
  return TheSettings().algorithms;
}

uint32_t Random(uint32_t below) {
  static Settings& settings = TheSettings();
  uint64_t z = settings.random += 0x9E3779B97F4A7C15;  // splitmix64
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return static_cast<uint32_t>((z >> 32) * below >> 32);
}

}  // namespace onnx_fp8::emulation
