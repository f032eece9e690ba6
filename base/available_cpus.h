// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/cgroups.h"

namespace onnx_fp8 {

// Number of CPUs that this process may use: its affinity mask's, but no more
// than its cgroups' quotas allow. At least 1.
int AvailableCpus();

// CPUs that the quotas of this process' cgroups (v1 and v2) allow, rounded up:
// the least of its own quota and of those around it; nothing if there is no
// quota. `read` is asked for the files of VisitCgroups and for cpu.max, or
// cpu.cfs_quota_us and cpu.cfs_period_us. Text in another form than the
// kernel's counts as no quota.
std::optional<int> CgroupCpus(const TextReader& read);

}  // namespace onnx_fp8
