// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// The groups to which this rank belongs. The key is an axis of the mesh, such
// as "dp"; nodes name it in their attribute `group`. The communicators outlive
// the map.
using Groups = std::map<std::string, Communicator*, std::less<>>;

}  // namespace onnx_fp8
