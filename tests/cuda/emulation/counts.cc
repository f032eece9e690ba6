// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/counts.h"

#include "tests/cuda/emulation/symbols.h"

namespace onnx_fp8::emulation {
namespace {

struct Counts {
  std::map<std::string, int64_t> calls;
  std::map<const void*, KernelTraffic> traffic;
  std::map<const void*, std::set<uint32_t>> streams;
  KernelTraffic ignored;
  KernelTraffic* current = &ignored;
};

Counts counts;

}  // namespace

void CountCall(const char* function) { ++counts.calls[function]; }

void CountStream(const void* kernel, uint32_t stream) {
  counts.streams[kernel].insert(stream);
}

void CountLaunch(const void* kernel) {
  counts.current = &counts.traffic[kernel];
  ++counts.current->launches;
}

void CountAccess(size_t bytes, bool reads, bool writes) {
  if (reads) counts.current->bytes_read += static_cast<int64_t>(bytes);
  if (writes) counts.current->bytes_written += static_cast<int64_t>(bytes);
}

int64_t Calls(const std::string& function) {
  auto at = counts.calls.find(function);
  return at == counts.calls.end() ? 0 : at->second;
}

std::map<std::string, KernelTraffic> Traffic() {
  std::map<std::string, KernelTraffic> by_name;
  for (const auto& [kernel, traffic] : counts.traffic) {
    KernelTraffic& sum = by_name[FunctionName(kernel)];
    sum.launches += traffic.launches;
    sum.bytes_read += traffic.bytes_read;
    sum.bytes_written += traffic.bytes_written;
    const std::set<uint32_t>& streams = counts.streams[kernel];
    sum.streams.insert(streams.begin(), streams.end());
  }
  return by_name;
}

void ResetCounts() {
  counts.calls.clear();
  counts.traffic.clear();
  counts.streams.clear();
  counts.current = &counts.ignored;
}

}  // namespace onnx_fp8::emulation
