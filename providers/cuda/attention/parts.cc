// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/attention/parts.h"

#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

// The largest divisor of n below d. REQUIRES: 1 < d <= n.
int64_t DivisorBelow(int64_t n, int64_t d) {
  do --d;
  while (n % d != 0);
  return d;
}

// A bfloat16 of x.
const void* Element(const void* x, int64_t at) {
  return static_cast<const uint16_t*>(x) + at;
}
void* Element(void* x, int64_t at) { return static_cast<uint16_t*>(x) + at; }

}  // namespace

size_t MostWorkspace(const LibraryProblem& p) {
  if (!p.backward) return size_t{1} << 20;
  int64_t t = RoundUp(p.t, 64), s = RoundUp(p.s, 128);
  return static_cast<size_t>(p.b * p.heads *
                             (2 * t * s + 64 * t + 8 * s * p.d));
}

size_t LibraryParts::LseBytes() const {
  int64_t rows = part.b * part.heads * part.t;
  bool aligned = count() == 1 || rows % 4 == 0;
  return aligned ? 0 : static_cast<size_t>(RoundUp(4 * rows, 256));
}

size_t MostWorkspace(const LibraryParts& parts) {
  return parts.LseBytes() + MostWorkspace(parts.part);
}

LibraryParts EqualParts(const LibraryProblem& whole, size_t most) {
  LibraryParts parts = {whole, whole};
  LibraryProblem& part = parts.part;
  if (!whole.backward || !whole.deterministic) return parts;
  while (MostWorkspace(parts) > most && part.b * part.groups > 1) {
    if (part.b > 1) {
      part.b = DivisorBelow(whole.b, part.b);
    } else {
      part.groups = DivisorBelow(whole.groups, part.groups);
      part.heads = whole.heads / whole.groups * part.groups;
    }
  }
  return parts;
}

LibraryBackward MemoryOf(const LibraryParts& parts, const LibraryBackward& m,
                         int64_t i) {
  const LibraryProblem &whole = parts.whole, &part = parts.part;
  int64_t of_batch = whole.groups / part.groups;
  int64_t batch = i / of_batch * part.b;
  int64_t group = i % of_batch * part.groups, head = i % of_batch * part.heads;
  int64_t q = batch * whole.q.batch + head * whole.q.head,
          k = batch * whole.k.batch + group * whole.k.head,
          v = batch * whole.v.batch + group * whole.v.head,
          y = batch * whole.y.batch + head * whole.y.head;
  return {.dy = Element(m.dy, y),
          .q = Element(m.q, q),
          .k = Element(m.k, k),
          .v = Element(m.v, v),
          .y = Element(m.y, y),
          .lse = m.lse + (batch * whole.heads + head) * whole.t,
          .dq = Element(m.dq, q),
          .dk = Element(m.dk, k),
          .dv = Element(m.dv, v)};
}

}  // namespace onnx_fp8::cuda
