// SPDX-License-Identifier: Apache-2.0
#include "base/available_cpus.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
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

bool Lists(const std::string& names, const std::string& name) {
  return ("," + names + ",").find("," + name + ",") != std::string::npos;
}

// A hierarchy of cgroups that can limit CPUs: the folder where it is mounted,
// the group that the mount shows, and our group.
struct Hierarchy {
  bool v2;
  std::string mount, root, ours;
};

// mountinfo writes blanks in paths as \040.
std::string Unescaped(const std::string& path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    bool escape = path[i] == '\\' && i + 3 < path.size() &&
                  std::all_of(path.begin() + static_cast<int64_t>(i) + 1,
                              path.begin() + static_cast<int64_t>(i) + 4,
                              [](char c) { return c >= '0' && c <= '7'; });
    text +=
        escape ? static_cast<char>(std::stoi(path.substr(i + 1, 3), nullptr, 8))
               : path[i];
    if (escape) i += 3;
  }
  return text;
}

// Lines of mountinfo: id, parent, device, root, mount point, options, any
// number of fields, "-", type, source, options of the superblock.
std::vector<Hierarchy> Mounts(const std::string& mountinfo) {
  std::vector<Hierarchy> found;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    auto dash = std::find(words.begin(), words.end(), "-");
    if (dash - words.begin() < 6 || words.end() - dash < 4) continue;
    bool v2 = dash[1] == "cgroup2";
    if (v2 || (dash[1] == "cgroup" && Lists(dash[3], "cpu"))) {
      found.push_back({v2, Unescaped(words[4]), Unescaped(words[3]), ""});
    }
  }
  return found;
}

// Lines of /proc/self/cgroup: number:controllers:path. Version 2 names no
// controllers.
std::optional<std::string> OurGroup(const std::string& cgroup, bool v2) {
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
    size_t first = line.find(':');
    size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() : Lists(controllers, "cpu")) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// Where our group's files lie below the mount point; "" is the mount point. In
// a container the path may be the host's, and the mount shows only its end.
std::string BelowMount(const Hierarchy& h) {
  std::string path = h.ours;
  if (h.root != "/") {
    if (path != h.root && !path.starts_with(h.root + "/")) return "";
    path.erase(0, h.root.size());
  }
  bool shown = path.starts_with("/") && !path.starts_with("/..");
  return shown && path != "/" ? path : "";
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
  std::string cgroup = read("/proc/self/cgroup").value_or("");
  for (Hierarchy h : Mounts(read("/proc/self/mountinfo").value_or(""))) {
    std::optional<std::string> ours = OurGroup(cgroup, h.v2);
    if (!ours) continue;
    h.ours = *ours;
    for (std::string path = BelowMount(h);;) {
      std::optional<double> cpus = QuotaOf(read, h.v2, h.mount + path);
      if (cpus) least = std::min(*cpus, least.value_or(*cpus));
      if (path.empty()) break;
      path.erase(path.rfind('/'));
    }
  }
  if (!least) return std::nullopt;
  constexpr double kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(std::ceil(*least), kMost));
}

int AvailableCpus() {
  std::optional<int> quota = CgroupCpus([](const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) return std::optional<std::string>();
    return std::optional(text.str());
  });
  int cpus = std::max(AffinityCpus(), 1);
  return quota ? std::min(cpus, *quota) : cpus;
}

}  // namespace onnx_fp8
