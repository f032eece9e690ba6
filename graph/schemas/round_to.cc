// SPDX-License-Identifier: Apache-2.0
//
// Rounding of a float value to the numbers of a 16-bit dtype.
#include "base/check.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

// y = x, rounded to the nearest number of dtype `to`, ties to even. Too large
// values become infinity.
constexpr char kRoundTo[] = R"((x) => (y) {
  narrow = Cast <to: int = @to> (x)
  y = CastLike (narrow, x)
})";

void InferRoundTo(Node& node) {
  auto to = static_cast<DType>(node.Int("to", 0));
  Check(IsHalf(to), "[", node.Where(),
        "] expected bfloat16 or float16 as attribute \"to\", got ", Name(to));
  SameAs(node.in(0), node.out(0));
}

}  // namespace

std::vector<OpDefinition> RoundToOps() {
  constexpr OpFacts facts = {OpKind::kRound, OpForm::kConvert,
                             Precision::kKeeps, ConstantUse::kWeight,
                             Division::kUneven};
  return {{"RoundTo",
           {{"to", AttributeKind::kInt}},
           kRoundTo,
           InferRoundTo,
           facts}};
}

}  // namespace onnx_fp8
