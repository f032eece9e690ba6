// SPDX-License-Identifier: Apache-2.0
#include "base/available_cpus.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <thread>
#include <vector>

namespace onnx_fp8 {
namespace {

int AffinityCpus() {
  // The kernel refuses a mask that is shorter than its own.
  for (size_t masks = 1; masks <= 64; masks *= 2) {
    std::vector<cpu_set_t> set(masks);
    size_t bytes = masks * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, set.data()) == 0) {
      return CPU_COUNT_S(bytes, set.data());
    }
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

// Quota and period in microseconds, as "150000 100000". A negative quota or the
// word max is no quota.
std::optional<double> Cpus(const std::string& quota_and_period) {
  std::istringstream in(quota_and_period);
  int64_t quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(quota) / static_cast<double>(period);
}

std::optional<double> QuotaOf(const TextReader& read, bool v2,
                              const std::string& folder) {
  if (v2) return Cpus(read(folder + "/cpu.max").value_or(""));
  return Cpus(read(folder + "/cpu.cfs_quota_us").value_or("") + " " +
              read(folder + "/cpu.cfs_period_us").value_or(""));
}

}  // namespace

std::optional<int> CgroupCpus(const TextReader& read) {
  std::optional<double> least;
  VisitCgroups(read, "cpu", [&](bool v2, const std::string& folder) {
    std::optional<double> cpus = QuotaOf(read, v2, folder);
    if (cpus) least = std::min(*cpus, least.value_or(*cpus));
  });
  if (!least) return std::nullopt;
  constexpr double kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(std::ceil(*least), kMost));
}

int AvailableCpus() {
  std::optional<int> quota = CgroupCpus(TextOfFile);
  int cpus = std::max(AffinityCpus(), 1);
  return quota ? std::min(cpus, *quota) : cpus;
}

}  // namespace onnx_fp8
