// SPDX-License-Identifier: Apache-2.0
//
// Control groups, by which Linux limits a process' CPUs and memory.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace onnx_fp8 {

// Returns the text of a file, or nothing if it cannot be read.
using TextReader =
    std::function<std::optional<std::string>(const std::string&)>;

// Reads the files of this machine.
std::optional<std::string> TextOfFile(const std::string& path);

// Calls `visit` for this process' group and each group around it, in all
// mounted hierarchies (v1 and v2) that can limit the controller ("cpu",
// "memory"). `folder` has the group's files. `read` is asked for
// /proc/self/cgroup and /proc/self/mountinfo; text in another form than the
// kernel's names no group.
void VisitCgroups(
    const TextReader& read, const std::string& controller,
    const std::function<void(bool v2, const std::string& folder)>& visit);

}  // namespace onnx_fp8
