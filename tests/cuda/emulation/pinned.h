// SPDX-License-Identifier: Apache-2.0
//
// Pinned memory is closed to the host while a copy of it waits: to writes if
// the copy reads it, to all if the copy writes it.
#pragma once

#include <cstddef>
#include <string>

namespace onnx_fp8::emulation {

struct PinnedRange {
  const void* begin = nullptr;
  size_t bytes = 0;
  bool written = false;

  bool operator==(const PinnedRange&) const = default;
};

// `what` waits. REQUIRES: pinned memory is not open.
void Hold(const PinnedRange& range, const std::string& what);
// Ends one Hold of the range. REQUIRES: pinned memory is open.
void Let(const PinnedRange& range);
void LetAll();

// Opens all that is held, while work runs; and closes it again.
void OpenPinned();
void ClosePinned();

// Describes the work that forbids the access; "" if none does.
std::string WhoHolds(const void* p, bool writes);

}  // namespace onnx_fp8::emulation
