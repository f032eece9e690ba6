// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "providers/cpu/math/isa.h"
#include "tests/support/left_out.h"

namespace onnx_fp8 {

// Those that this machine can run: there is at least kPortable. Says which
// ones are left out: their loops are tested where a machine has them.
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

// Until its end everything runs with `isa`.
class WithIsa {
 public:
  explicit WithIsa(Isa isa) { ForceIsa(Name(isa)); }
  ~WithIsa() { ForceIsa("auto"); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;
};

}  // namespace onnx_fp8
