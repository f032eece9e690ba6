// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "providers/cpu/math/isa.h"
#include "tests/support/left_out.h"

namespace onnx_fp8 {

// The instruction sets that this machine can run; at least kPortable. Reports
// the others as left out: their loops are tested on machines that have them.
inline std::vector<Isa> RunnableIsas() {
  std::vector<Isa> isas;
  std::string others;
  for (Isa isa : AllIsas()) {
    if (HasIsa(isa)) {
      isas.push_back(isa);
    } else {
      others += std::string(others.empty() ? "" : ", ") + Name(isa);
    }
  }
  if (!others.empty()) {
    LeaveOut("loops for " + others + ", which this machine can't run");
  }
  return isas;
}

// While this object lives, everything runs with `isa`.
class WithIsa {
 public:
  explicit WithIsa(Isa isa) { ForceIsa(Name(isa)); }
  ~WithIsa() { ForceIsa("auto"); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;
};

}  // namespace onnx_fp8
