// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/check.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// The name of a state of a session: `hint`, with a number if the session's
// model has a value of that name. All graphs of the session know the state by
// it, whatever else they hold.
inline std::string StateName(const Graph& model, const std::string& hint) {
  std::string name = hint;
  for (int i = 1; model.Find(name); ++i) name = Concat(hint, "_", i);
  return name;
}

}  // namespace onnx_fp8
