// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// The groups of ranks to which this rank belongs, by the name that nodes give
// as attribute `group`: an axis of the mesh, such as "dp". The communicators
// outlive the map.
using Groups = std::map<std::string, Communicator*, std::less<>>;

}  // namespace onnx_fp8
