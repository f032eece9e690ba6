// SPDX-License-Identifier: Apache-2.0
#include "base/cgroups.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace onnx_fp8 {
namespace {

bool Lists(const std::string& names, const std::string& name) {
  return ("," + names + ",").find("," + name + ",") != std::string::npos;
}

// A hierarchy of groups that can limit a controller.
struct Hierarchy {
  bool v2;
  std::string mount;  // the folder where it is mounted
  std::string root;   // the group that this folder shows
  std::string ours;   // the group of this process
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
std::vector<Hierarchy> Mounts(const std::string& mountinfo,
                              const std::string& controller) {
  std::vector<Hierarchy> found;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    auto dash = std::find(words.begin(), words.end(), "-");
    if (dash - words.begin() < 6 || words.end() - dash < 4) continue;
    bool v2 = dash[1] == "cgroup2";
    if (v2 || (dash[1] == "cgroup" && Lists(dash[3], controller))) {
      found.push_back({v2, Unescaped(words[4]), Unescaped(words[3]), ""});
    }
  }
  return found;
}

// Lines of /proc/self/cgroup: number:controllers:path. Version 2 names no
// controllers.
std::optional<std::string> OurGroup(const std::string& cgroup, bool v2,
                                    const std::string& controller) {
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
    size_t first = line.find(':');
    size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() : Lists(controllers, controller)) {
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

}  // namespace

std::optional<std::string> TextOfFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void VisitCgroups(
    const TextReader& read, const std::string& controller,
    const std::function<void(bool v2, const std::string& folder)>& visit) {
  const std::string cgroup = read("/proc/self/cgroup").value_or("");
  const std::string mounts = read("/proc/self/mountinfo").value_or("");
  for (Hierarchy h : Mounts(mounts, controller)) {
    std::optional<std::string> ours = OurGroup(cgroup, h.v2, controller);
    if (!ours) continue;
    h.ours = *ours;
    for (std::string path = BelowMount(h);;) {
      visit(h.v2, h.mount + path);
      if (path.empty()) break;
      path.erase(path.rfind('/'));
    }
  }
}

}  // namespace onnx_fp8
