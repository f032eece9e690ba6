// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation/reports.h"

namespace onnx_fp8::emulation {
namespace {

constexpr int kNan = 0xFF;  // every byte of a NaN of any width
constexpr size_t kNanBytes = size_t{4} << 20;
// Bytes in front of an allocation that FindOverrun looks at, and behind.
constexpr size_t kWatched = 256;

struct Memory {
  // Never erased, so that a stale pointer can be described. By the address of
  // the first guard page.
  std::map<uintptr_t, Allocation> all;
  std::vector<Allocation*> open;
  size_t used = 0;
  bool opens = false;  // on faults of this thread:
  pthread_t thread = {};
};

Memory& TheMemory() {
  static auto& memory = *new Memory;
  return memory;
}

size_t RoundUp(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

size_t MappedBytes(const Allocation& a) {
  return static_cast<size_t>(a.map_end - a.map);
}

void Protect(Allocation& a, bool open) {
  mprotect(a.map, MappedBytes(a), open ? PROT_READ | PROT_WRITE : PROT_NONE);
  a.open = open;
}

void CloseAll() {
  for (Allocation* a : TheMemory().open) {
    if (a->live()) Protect(*a, false);
  }
  TheMemory().open.clear();
}

// A mapping that nobody may touch, with a guard page on each side.
char* Reserve(size_t bytes) {
  void* p = mmap(nullptr, bytes + 2 * kPage, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<char*>(p) + kPage;
}

// A file of kNanBytes bytes that are NaN.
int NanFile() {
  static int file = [] {
    int made = memfd_create("fresh device memory", MFD_CLOEXEC);
    const std::string nan(kNanBytes, static_cast<char>(kNan));
    ssize_t written = write(made, nan.data(), nan.size());
    Check(written == static_cast<ssize_t>(kNanBytes),
          "no memory for fresh device memory");
    return made;
  }();
  return file;
}

// Maps the file one time after the other. The system copies a page when
// somebody writes to it; most pages of pinned memory are never touched.
void MapNan(char* begin, char* end, int allowed) {
  for (size_t bytes; begin < end; begin += bytes) {
    bytes = std::min(kNanBytes, static_cast<size_t>(end - begin));
    void* p = mmap(begin, bytes, allowed,
                   MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, NanFile(), 0);
    Check(p == begin, "can't map fresh device memory");
  }
}

// Whether n bytes are as they were filled. n ≤ kWatched.
bool IsFill(const char* p, size_t n) {
  static const std::string fill(kWatched, static_cast<char>(kNan));
  return std::memcmp(p, fill.data(), n) == 0;
}

// The first overwritten byte beside the allocation, or null.
char* Overwritten(const Allocation& a) {
  size_t before = std::min(kWatched, static_cast<size_t>(a.begin - a.map));
  char* end = a.begin + a.bytes;
  auto after = static_cast<size_t>(a.map_end - end);
  for (auto [p, n] :
       {std::pair(a.begin - before, before), std::pair(end, after)}) {
    if (IsFill(p, n)) continue;
    while (*p == static_cast<char>(kNan)) ++p;
    return p;
  }
  return nullptr;
}

}  // namespace

size_t FreeMemory() {
  return TotalMemory() - std::min(TotalMemory(), TheMemory().used);
}

cudaError_t Allocate(bool device, size_t bytes, void** out,
                     Allocation::State state) {
  Memory& memory = TheMemory();
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  // Real memory begins at multiples of 256 and has no guard: the end of the
  // last 256 bytes is as near to the guard as it can be.
  size_t rounded = RoundUp(bytes, 256), mapped = RoundUp(rounded, kPage);
  if (device && mapped > FreeMemory()) return cudaErrorMemoryAllocation;
  char* map = Reserve(mapped);
  if (!map) return cudaErrorMemoryAllocation;
  Allocation& a = memory.all[AddressOf(map - kPage)];
  a.id = static_cast<int>(memory.all.size()) - 1;
  a.device = device;
  a.map = map;
  a.map_end = map + mapped;
  a.begin = a.map_end - rounded;
  a.bytes = bytes;
  if (device) memory.used += mapped;
  a.state = state;
  if (state == Allocation::State::kLive) Revive(a);
  *out = a.begin;
  return cudaSuccess;
}

void Revive(Allocation& a) {
  a.open = !a.device;
  MapNan(a.map, a.map_end, a.open ? PROT_READ | PROT_WRITE : PROT_NONE);
  a.state = Allocation::State::kLive;
}

void Release(Allocation& a) {
  a.state = Allocation::State::kFreed;
  a.checks = nullptr;
  a.open = false;
  // A new mapping gives the pages back and joins its neighbors.
  mmap(a.map, MappedBytes(a), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (a.device) TheMemory().used -= MappedBytes(a);
}

Allocation* Find(const void* p) {
  // No page ever belongs to a second allocation.
  struct Found {
    uintptr_t page;
    Allocation* allocation;
  };
  static std::array<Found, 1024> recent = {};
  uintptr_t page = AddressOf(p) / kPage;
  Found& found = recent[page % recent.size()];
  if (found.allocation && found.page == page) return found.allocation;
  auto& all = TheMemory().all;
  auto next = all.upper_bound(AddressOf(p));
  if (next == all.begin()) return nullptr;
  Allocation& a = std::prev(next)->second;
  if (p >= a.map_end + kPage) return nullptr;
  found = {page, &a};
  return &a;
}

Allocation* FindBegin(const void* p) {
  Allocation* a = Find(p);
  bool begins = a && a->state != Allocation::State::kFreed && a->begin == p;
  return begins ? a : nullptr;
}

bool Reachable(const void* p, size_t bytes) {
  const Allocation* a = Find(p);
  if (!a || !a->live() || p < a->begin) return false;
  size_t at = AddressOf(p) - AddressOf(a->begin);
  return at < a->bytes && bytes <= a->bytes - at;
}

std::string Describe(const void* p) {
  if (!p) return "a null pointer";
  const Allocation* a = Find(p);
  if (!a) {
    return Concat(p, AddressOf(p) < kPage ? " (near a null pointer)"
                                          : " (plain host memory)");
  }
  const char* state = a->live()                               ? "live"
                      : a->state == Allocation::State::kFreed ? "freed"
                                                              : "not yet live";
  auto at = static_cast<std::ptrdiff_t>(AddressOf(p) - AddressOf(a->begin));
  return Concat("byte ", at, " of ", a->device ? "device" : "pinned",
                " allocation ", a->id, " (", a->bytes, " bytes, ", state, ")");
}

OpenMemory::OpenMemory() {
  TheMemory().opens = true;
  TheMemory().thread = pthread_self();
}

OpenMemory::~OpenMemory() {
  TheMemory().opens = false;
  CloseAll();
}

ClosedMemory::ClosedMemory() {
  TheMemory().opens = false;
  CloseAll();
}

ClosedMemory::~ClosedMemory() { TheMemory().opens = true; }

bool OpenOnFault(const void* p) {
  Memory& memory = TheMemory();
  if (!memory.opens || !pthread_equal(memory.thread, pthread_self())) {
    return false;
  }
  Allocation* a = Find(p);
  bool opens =
      a && a->device && a->live() && !a->open && p >= a->map && p < a->map_end;
  if (!opens) return false;
  Protect(*a, true);
  memory.open.push_back(a);
  return true;
}

bool FindOverrun(const std::string& what) {
  for (Allocation* a : TheMemory().open) {
    if (!a->live()) continue;
    char* p = Overwritten(*a);
    if (!p) continue;
    Report(what, " wrote past an end: ", Describe(p));
    char* end = a->begin + a->bytes;
    std::memset(a->map, kNan, static_cast<size_t>(a->begin - a->map));
    std::memset(end, kNan, static_cast<size_t>(a->map_end - end));
    return true;
  }
  return false;
}

}  // namespace onnx_fp8::emulation
