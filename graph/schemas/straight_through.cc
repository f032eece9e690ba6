// SPDX-License-Identifier: Apache-2.0
//
// A mark for the backward: the gradient of a rounded value goes to the value
// before it was rounded.
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

// z = y. The gradient of z is x's where `inside` is true, and ends elsewhere.
constexpr char kStraightThrough[] = R"((y, x, inside) => (z) {
  z = Identity (y)
})";

}  // namespace

std::vector<OpDefinition> StraightThroughOps() {
  return {{"StraightThrough",
           {},
           kStraightThrough,
           [](Node& node) { SameAs(node.in(0), node.out(0)); },
           LateOp(OpKind::kOther)}};
}

}  // namespace onnx_fp8
