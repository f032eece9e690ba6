// SPDX-License-Identifier: Apache-2.0
//
// Operands of a product, copied in the order in which a kernel reads them. A
// *panel* holds as many rows of A (columns of B) as a kernel's tile has, for
// the whole depth of a block, with zeros after the end of the matrix. Every
// orientation is packed from the same row-major matrix.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onnx_fp8/dtype.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {

// Element (w, k) of a panel of `width`:
enum class PanelLayout {
  kFloat,      // float, k · width + w
  kPairs,      // bfloat16, k/2 · 2 width + 2 w + k%2: for a dot product of
               // pairs
  kPairTiles,  // as kPairs, depth rounded up to 32
  kRowTiles,  // bfloat16, k/32 · 32 width + 32 w + k%32: rows of a matrix tile
};

// Depth is padded with zeros to a multiple of this.
constexpr int64_t DepthUnit(PanelLayout layout) {
  return layout == PanelLayout::kFloat   ? 1
         : layout == PanelLayout::kPairs ? 2
                                         : 32;
}

constexpr size_t PanelElementBytes(PanelLayout layout) {
  return layout == PanelLayout::kFloat ? 4 : 2;
}

// A block of a matrix: element (w, k) is data[w · ld + k], or with
// `k_major` data[k · ld + w].
struct PanelSource {
  const void* data;
  // kE4M3, kE5M2, kBFloat16; in kFloat panels also kFloat and kFloat16.
  DType dtype;
  int64_t ld;
  bool k_major;
};

// Number of bytes that PackPanels writes, and of those behind that it may
// touch.
size_t PanelBytes(PanelLayout layout, int64_t width, int64_t count,
                  int64_t depth);

// Packs `count` w's and `depth` k's into panels of `width`, one after the
// other, on the calling thread. REQUIRES: width is 6, 8, 14, 16 or 32.
void PackPanels(PanelLayout layout, int64_t width, const PanelSource& from,
                int64_t count, int64_t depth, void* to);

}  // namespace onnx_fp8
