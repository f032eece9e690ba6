// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/quantize_parts.h"

namespace onnx_fp8 {

std::vector<Value*> AmaxesOfWholes(Builder& b, const std::vector<Value*>& parts,
                                   const Mesh& mesh, const Axes& axes) {
  std::vector<Value*> own, amaxes;
  for (Value* part : parts) {
    own.push_back(b.Reshape(b.Ours("Amax", {part}), {1}));
  }
  Value* all =
      own.size() == 1 ? own[0] : b.Op("Concat", own, {{"axis", int64_t{0}}});
  all = MaxOver(b, all, mesh, axes);
  for (size_t i = 0; i < parts.size(); ++i) {
    amaxes.push_back(b.Op("Gather", {all, b.Int(static_cast<int64_t>(i))},
                          {{"axis", int64_t{0}}}));
  }
  return amaxes;
}

Value* QuantizePart(Graph& graph, Node* quantizer, Value* part, Value* amax) {
  Builder b(graph, part->name + ".", quantizer);
  b.set_metadata(quantizer->metadata);
  Value* scale_in = quantizer->in(1);
  if (!scale_in) scale_in = b.Scalar(0, part);
  Value* codes = b.Ops("QuantizeAmax", {part, amax, scale_in}, 2,
                       quantizer->attributes, kDomain)[0];
  graph.MoveOutput(quantizer->out(1), codes->producer, 1);
  if (Value* seen = quantizer->out(2)) {
    graph.MoveOutput(seen, b.Op("Identity", {amax})->producer, 0);
  }
  return codes;
}

}  // namespace onnx_fp8
