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

// What this machine reaches, per second.
struct MachinePeaks {
  double flops = 0;            // of float products
  double eight_bit_flops = 0;  // of products of 8-bit floats
  double bytes = 0;            // to and from memory
};

// In about a third of a second, on all threads.
MachinePeaks MeasurePeaks();

// Nodes that have the same text in `key`, longest first.
struct ProfileGroup {
  std::string key;
  double calls = 0, milliseconds = 0;
};
std::vector<ProfileGroup> GroupBy(const ProfileReport& report,
                                  std::string NodeProfile::*key);

nlohmann::ordered_json ProfileJson(const ProfileReport& report,
                                   const MachinePeaks& peaks);
void PrintProfile(const ProfileReport& report, const MachinePeaks& peaks,
                  std::ostream& out);

}  // namespace onnx_fp8
