// SPDX-License-Identifier: Apache-2.0
#include "training/session/layers_remark.h"

#include <algorithm>

#include "base/check.h"

namespace onnx_fp8 {

std::string LayersRemark(const std::vector<LayerSplit>& layers,
                         const std::string& file, int64_t ranks) {
  const auto whole = std::ranges::count(layers, LayerSplit::kWhole,
                                        [](const auto& l) { return l.kind; });
  const auto all = std::ssize(layers);
  Check(whole < all, "[", file, "] expected layers that ", ranks,
        " ranks of the axis tp can divide, got none in ", all,
        ": `inspect` with `mesh` tells why");
  if (whole == 0) return "";
  return Concat(whole, " of ", all, " layers and embeddings are whole on each ",
                "rank of the axis tp: `inspect` with `mesh` tells why");
}

}  // namespace onnx_fp8
