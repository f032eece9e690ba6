// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/pinned.h"

#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "tests/cuda/emulation/memory.h"

namespace onnx_fp8::emulation {
namespace {

struct Held {
  PinnedRange range;
  std::string what;
};

std::vector<Held>& AllHeld() {
  static auto& held = *new std::vector<Held>;
  return held;
}

void Protect(const PinnedRange& range, int allowed) {
  uintptr_t begin = AddressOf(range.begin) & ~(kPage - 1);
  uintptr_t end = AddressOf(range.begin) + range.bytes;
  mprotect(reinterpret_cast<void*>(begin), end - begin, allowed);
}

void Close(const PinnedRange& range) {
  Protect(range, range.written ? PROT_NONE : PROT_READ);
}

bool SharePages(const PinnedRange& a, const PinnedRange& b) {
  auto first = [](const PinnedRange& r) { return AddressOf(r.begin) / kPage; };
  auto last = [](const PinnedRange& r) {
    return (AddressOf(r.begin) + r.bytes - 1) / kPage;
  };
  return first(a) <= last(b) && first(b) <= last(a);
}

}  // namespace

void Hold(const PinnedRange& range, const std::string& what) {
  Close(range);
  for (const Held& other : AllHeld()) {
    // A page is as closed as the strictest range in it.
    if (other.range.written && SharePages(other.range, range)) {
      Close(other.range);
    }
  }
  AllHeld().push_back({range, what});
}

void Let(const PinnedRange& range) {
  auto at = std::ranges::find(AllHeld(), range, &Held::range);
  if (at != AllHeld().end()) AllHeld().erase(at);
}

void LetAll() {
  OpenPinned();
  AllHeld().clear();
}

void OpenPinned() {
  for (const Held& held : AllHeld()) {
    Protect(held.range, PROT_READ | PROT_WRITE);
  }
}

void ClosePinned() {
  // Ranges that forbid more come last, because ranges may share pages.
  for (bool written : {false, true}) {
    for (const Held& held : AllHeld()) {
      if (held.range.written == written) Close(held.range);
    }
  }
}

std::string WhoHolds(const void* p, bool writes) {
  for (const auto& [range, what] : AllHeld()) {
    uintptr_t begin = AddressOf(range.begin);
    bool inside = AddressOf(p) >= begin && AddressOf(p) < begin + range.bytes;
    if (!inside || !(writes || range.written)) continue;
    return Concat("pending work (", what, ") still ",
                  range.written ? "writes" : "reads");
  }
  return "";
}

}  // namespace onnx_fp8::emulation
