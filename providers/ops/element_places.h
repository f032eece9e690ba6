// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "base/stochastic_rounding.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// The attributes of an op that draws. An update has them if it has taken over
// such an op (join_masters.h, join_moments.h). There, the stream of the
// parameter is `master_stream`.
struct DrawSettings {
  uint32_t stream;
  ElementPlaces places;
};

inline ElementPlaces PlacesOf(const Node& node) {
  return {
      .shift = node.Int("shift", 0),
      .run = node.Int("row", 1),
      .stride = node.Int("stride", 1),
      .begin = node.Int("begin", 0),
  };
}

inline DrawSettings DrawSettingsOf(const KernelContext& ctx,
                                   const char* stream = "stream") {
  const ElementPlaces places = PlacesOf(ctx.node());
  Check(places.IsValid(), "[", ctx.Where(),
        "] expected a row from 1 on, and a shift, a stride ",
        "and a begin from 0 on");
  return {static_cast<uint32_t>(ctx.Int(stream, 0)), places};
}

}  // namespace onnx_fp8
