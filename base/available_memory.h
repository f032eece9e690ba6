// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/cgroups.h"

namespace onnx_fp8 {

// Bytes of memory that this process may hold: what it holds now, and what the
// machine has left for it, but no more than its cgroup and the ones around it
// allow. 0: not known.
size_t AvailableMemory();

// The same by the text of files: `read` is asked for /proc/meminfo,
// /proc/self/status, the files of VisitCgroups, and the limits memory.max (v2)
// and memory.limit_in_bytes (v1).
size_t AvailableMemoryIn(const TextReader& read);

}  // namespace onnx_fp8
