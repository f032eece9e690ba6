// SPDX-License-Identifier: Apache-2.0
//
// Device and pinned memory. Device memory is NaN when fresh, closed to the host
// but while work runs, ends at a guard page, and is closed for good when freed:
// no address is used twice.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace onnx_fp8::emulation {

inline constexpr size_t kPage = 4096;

inline uintptr_t AddressOf(const void* p) {
  return reinterpret_cast<uintptr_t>(p);
}

struct Allocation {
  // cudaMallocAsync gives out memory that begins to live when its stream
  // reaches the call.
  enum class State { kComing, kLive, kFreed };

  int id = 0;
  bool device = true;
  bool of_stream = false;  // from cudaMallocAsync
  bool leaving = false;    // cudaFreeAsync waits in a stream
  bool open = false;       // to the host
  State state = State::kLive;
  char* begin = nullptr;
  size_t bytes = 0;
  // Whole pages around it. A guard page lies on each side.
  char *map = nullptr, *map_end = nullptr;
  // Owned by access_checks.cc.
  std::shared_ptr<void> checks;

  bool live() const { return state == State::kLive; }
};

// Errors: the limit is reached.
cudaError_t Allocate(bool device, size_t bytes, void** out,
                     Allocation::State state = Allocation::State::kLive);
// Begins the life of a coming one. It is closed.
void Revive(Allocation& allocation);
void Release(Allocation& allocation);

// The allocation of any time whose pages, with the guards, hold p; or null.
Allocation* Find(const void* p);
// The one that begins at p and was not freed; or null.
Allocation* FindBegin(const void* p);
// Whether a kernel may touch these bytes: they lie in one live allocation,
// device or pinned.
bool Reachable(const void* p, size_t bytes);

// "byte 64 of device allocation 3 (64 bytes, live)"
std::string Describe(const void* p);

// While one lives, this thread may touch device memory. An allocation opens at
// the first touch, from the signal handler: most work touches few of many.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

// Closes it again meanwhile, for a function of the host that a stream calls.
class ClosedMemory {
 public:
  ClosedMemory();
  ~ClosedMemory();
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;
};

// After a fault at p: whether that opened memory, so that the access may be
// tried again.
bool OpenOnFault(const void* p);

// Whether bytes that belong to no allocation were overwritten beside an open
// one. If so, reports it and repairs them. `what` did it.
bool FindOverrun(const std::string& what);

}  // namespace onnx_fp8::emulation
