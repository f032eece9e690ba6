// SPDX-License-Identifier: Apache-2.0
//
// The gradient of attention by the library, in equal parts that follow each
// other and share one workspace. Batches and groups of heads do not meet in the
// gradient, so parts give the same bits as one call.
#pragma once

#include "providers/cuda/attention/library.h"

namespace onnx_fp8::cuda {

// The most bytes of the library's workspace. The forward pass needs little. The
// backward pass keeps the gradients of the scores, and floats for each row.
size_t MostWorkspace(const LibraryProblem& problem);

struct LibraryParts {
  LibraryProblem whole, part;

  int64_t count() const {
    return whole.b / part.b * (whole.groups / part.groups);
  }
  // Bytes for a copy of a part's lse, before the library's workspace. 0: there
  // is no copy, because all parts of lse begin at a multiple of 16 bytes.
  size_t LseBytes() const;
};

// The same for a part, with the copy of its lse.
size_t MostWorkspace(const LibraryParts& parts);

// The fewest equal parts of a deterministic gradient whose MostWorkspace is at
// most `most`: parts of the batches, then groups of one batch. One group of one
// batch is never divided, whatever it needs. Other problems are one part.
LibraryParts EqualParts(const LibraryProblem& whole, size_t most);

// Operands and results of part i.
LibraryBackward MemoryOf(const LibraryParts& parts,
                         const LibraryBackward& whole, int64_t i);

}  // namespace onnx_fp8::cuda
