// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "providers/cpu/isa.h"

namespace onnx_fp8 {

// Those that this machine can run: there is at least kPortable. Loops for the
// others are tested where a machine has them.
inline std::vector<Isa> RunnableIsas() {
  std::vector<Isa> isas;
  for (Isa isa : AllIsas()) {
    if (HasIsa(isa)) isas.push_back(isa);
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
