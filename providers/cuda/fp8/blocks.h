// SPDX-License-Identifier: Apache-2.0
//
// Tensors whose blocks of elements have scales of their own, and the strategy
// that quantizes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/block_factor.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/many.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {

enum class Strategy : uint8_t {
  // Register-resident: one block of threads holds all elements that share a
  // scale, and x is read once.
  kRows,             // one scale for a row, which some warps hold
  kRowParts,         // 1 x 32, 64 or 128
  kColumnParts,      // 32, 64 or 128 x 1, and short columns
  kTransposedParts,  // the same, of which the transpose is written
  kSquares,          // 128 x 128, and small matrices
  kBothParts,        // 1 x 32, 64 or 128, and the same of the transpose
  // x is read twice.
  kLongRows,   // one scale for a row that is too long
  kColumns,    // one scale for a column
  kBothWhole,  // rows and columns have one scale each
  kGeneric     // blocks of any other size
};

struct Blocks {
  FloatsIn x;
  int64_t rows, columns, block_rows, block_columns, down, across, count;
  Strategy strategy;
  bool aligned;  // vectors of 16 bytes and their codes can be moved at once
  bool e4m3;     // else E5M2
  // In kRows `warps` warps hold a row. 2^shift lanes hold a part of a row, and
  // 2^shift warps hold a part of a column.
  int warps, shift;
  int lanes_together;  // kGeneric: neighbors whose elements lie in one block
  float* factors;      // of each block, if x is read twice; before that, amaxes
  DeviceAmax* amax;    // of all
  BlockFormat format;
  void* scales;
  float* amax_out;
  uint8_t* q;
  // If `transposed`, each column, or each part of a column, has a scale. The
  // kernel writes the transpose of the codes to q_transposed, and the scales in
  // the order of the transpose; q is null. A null q_transposed means that no
  // node reads the codes.
  bool transposed;
  uint8_t* q_transposed;
  float* sums;  // of columns, for each row of tiles; null: nobody reads them
};

// The index of a block's scale.
__device__ inline int64_t ScaleAt(const Blocks& b, int64_t down,
                                  int64_t across) {
  return b.transposed ? across * b.down + down : down * b.across + across;
}

// Register-resident strategies: a tile has 128 columns, and a warp holds 8 rows
// of it.
inline constexpr int kWarps = 8;  // of most blocks of threads
inline constexpr int kTileColumns = 128, kRowsOfWarp = 8;
inline constexpr int kTileRows = kRowsOfWarp * kWarps;
// Tiles with as many rows as columns.
inline constexpr int kSquareWarps = kTileColumns / kRowsOfWarp;
// kGeneric: neighbors in a row.
inline constexpr int kLanes = 32;

inline bool IsNarrow(const Blocks& b) { return b.x.storage != Storage::kFloat; }

// The blocks of the node's operand 0. `transposed`: columns, or parts of them,
// as QuantizeColumns and QuantizeBlockTranspose have them. Errors: attributes
// that are not the op's, sizes that are no multiples of 4 where a transpose is
// written.
Blocks BlocksOf(KernelContext& ctx, bool transposed);

inline bool ReadsTwice(const Blocks& b) {
  return b.strategy == Strategy::kColumns || b.strategy == Strategy::kGeneric ||
         b.strategy == Strategy::kBothWhole;
}
// The factors that a tensor leaves for its second pass, up to whole vectors.
inline int64_t FactorsOf(const Blocks& b) {
  return ReadsTwice(b) ? RoundUp(b.count, kPerThread) : 0;
}
// Clears the memory of factors, in which a kernel then measures amaxes.
void ClearFactors(cudaStream_t stream, std::span<const Blocks> all);
// Turns these amaxes into factors, and writes scales and the tensor's amax.
void MakeFactors(cudaStream_t stream, std::span<Blocks> all);

// How many tiles have elements.
inline unsigned Tiles(const Blocks& b, int64_t rows, int64_t columns) {
  return static_cast<unsigned>(DivideUp(b.rows, rows) *
                               DivideUp(b.columns, columns));
}

// Starts a kernel for those tensors that it has blocks for.
template <typename BlocksOfTensor>
void StartBlocks(cudaStream_t stream, std::span<Blocks> all,
                 void (*kernel)(Many<Blocks>), int threads,
                 BlocksOfTensor blocks_of) {
  ForMany(all, blocks_of, [&](const Many<Blocks>& many) {
    Launch(kernel, many.blocks, threads, 0, stream, many);
  });
}

// Quantizes the tensors of kTransposedParts.
void QuantizeTransposed(cudaStream_t stream, std::span<Blocks> all);
// The transposed codes of kColumns and kGeneric, by their factors.
void EncodeTransposed(cudaStream_t stream, std::span<Blocks> all);

}  // namespace onnx_fp8::cuda
