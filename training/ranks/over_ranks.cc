// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/over_ranks.h"

#include <string>

namespace onnx_fp8 {
namespace {

Value* Reduced(Builder& b, Value* x, const Mesh& mesh, const Axes& axes,
               const char* reduction) {
  for (const std::string& axis : axes) {
    if (mesh.Size(axis) == 1) continue;
    Attributes attributes = GroupOf(mesh, axis);
    attributes["reduction"] = std::string(reduction);
    x = b.Ours("AllReduce", {x}, attributes);
  }
  return x;
}

}  // namespace

Value* SumOver(Builder& b, Value* x, const Mesh& mesh, const Axes& axes) {
  return Reduced(b, x, mesh, axes, "sum");
}

Value* MaxOver(Builder& b, Value* x, const Mesh& mesh, const Axes& axes) {
  return Reduced(b, x, mesh, axes, "max");
}

Attributes GroupOf(const Mesh& mesh, const std::string& axis) {
  return {{"group", axis}, {"ranks", mesh.Size(axis)}};
}

}  // namespace onnx_fp8
