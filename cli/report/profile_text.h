// SPDX-License-Identifier: Apache-2.0
//
// A profile for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "onnx_fp8/profile_report.h"

namespace onnx_fp8 {

// Nodes that have the same text in `key`, longest first.
struct ProfileGroup {
  std::string key;
  double calls = 0, milliseconds = 0;
};
std::vector<ProfileGroup> GroupBy(const ProfileReport& report,
                                  std::string NodeProfile::*key);

// The groups with their shares of the time of all nodes; `name` is the key's.
nlohmann::ordered_json GroupsJson(const ProfileReport& report, const char* name,
                                  std::string NodeProfile::*key);
void PrintGroups(const ProfileReport& report, const char* name,
                 std::string NodeProfile::*key, std::ostream& out);

nlohmann::ordered_json ProfileJson(const ProfileReport& report,
                                   const MachinePeaks& peaks);
void PrintProfile(const ProfileReport& report, const MachinePeaks& peaks,
                  std::ostream& out);

}  // namespace onnx_fp8
