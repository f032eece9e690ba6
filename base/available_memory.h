// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/available_cpus.h"

namespace onnx_fp8 {

// Bytes of memory that this process may hold: what it holds now, and what the
// machine has left for it, but no more than its cgroup allows. 0: not known.
size_t AvailableMemory();

// The same by the text of files: `read` is asked for /proc/meminfo,
// /proc/self/status, and the limits /sys/fs/cgroup/memory.max (v2) and
// /sys/fs/cgroup/memory/memory.limit_in_bytes (v1).
size_t AvailableMemoryIn(const TextReader& read);

}  // namespace onnx_fp8
