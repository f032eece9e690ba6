// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace onnx_fp8 {

// Threads of the process' one pool (OpenMP's). Set once at start; n >= 1.
void SetNumThreads(int n);
int NumThreads();

// Calls fn(begin, end) for disjoint ranges that cover [0, n), each a multiple
// of `grain` elements long (but the last), on the pool's threads; a range no
// longer than `grain` runs on the caller. The split depends on n, grain and
// NumThreads() only, so results are repeatable. The first exception thrown by
// fn is rethrown on the caller. Inside another ParallelFor it runs on the
// caller.
void ParallelFor(int64_t n, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& fn);

// Calls fn(i) for each i of [0, n), in turn whenever a thread of the pool is
// free: for few, long tasks whose results do not depend on who computes them.
// Else as ParallelFor.
void ParallelTasks(int64_t n, const std::function<void(int64_t)>& fn);

}  // namespace onnx_fp8
