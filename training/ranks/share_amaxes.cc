// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/share_amaxes.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/builder.h"
#include "graph/op_facts.h"
#include "training/ranks/over_ranks.h"

namespace onnx_fp8 {
namespace {

bool IsOverRanks(const Node& node, Collective collective) {
  return FactsOf(node).collective == collective &&
         node.String("group", "") == kTensorRanks;
}

class AmaxSharer {
 public:
  AmaxSharer(Graph& graph, const Mesh& mesh, bool new_scales)
      : graph_(graph), mesh_(mesh), new_scales_(new_scales) {}

  void Run(const std::set<std::string>& parts) {
    std::vector<Node*> gathers;
    for (Node& node : graph_.nodes()) {
      if (IsOverRanks(node, Collective::kAllGather)) gathers.push_back(&node);
    }
    std::vector<Node*> measured = Measured(parts);
    for (Node* gather : gathers) {
      if (TravelsQuantized(*gather)) QuantizeFirst(*gather);
    }
    Quantize(measured);
  }

 private:
  // Quantizers that measure the scale of a part, in order. The amaxes of
  // parameters are one message, so they need no `new_scales`.
  std::vector<Node*> Measured(const std::set<std::string>& names) {
    std::unordered_set<const Value*> parts;
    for (const std::string& name : names) {
      if (const Value* value = graph_.Find(name)) parts.insert(value);
    }
    std::vector<Node*> quantizers;
    for (Node& node : graph_.nodes()) {
      bool reads = IsOverRanks(node, Collective::kReduceScatter);
      for (const Value* in : node.inputs()) reads |= parts.contains(in);
      if (!reads || IsOverRanks(node, Collective::kAllReduce) ||
          IsOverRanks(node, Collective::kAllGather)) {
        continue;
      }
      const CodeScale scale = FactsOf(node).scale;
      bool measures = scale == CodeScale::kMeasured ||
                      (scale == CodeScale::kGiven &&
                       (new_scales_ || !node.in(0)->producer));
      if (measures) quantizers.push_back(&node);
      for (const Value* out : node.outputs()) parts.insert(out);
    }
    return quantizers;
  }

  bool TravelsQuantized(const Node& gather) const {
    const Value* all = gather.out(0);
    return !all->uses.empty() && !IsReturned(graph_, all) &&
           std::ranges::all_of(all->uses, [&](const Node* reader) {
             return QuantizesByOneScale(*reader) && reader->in(0) == all;
           });
  }

  void QuantizeFirst(Node& gather) {
    Value* part = gather.in(0);
    const std::vector<Node*> quantizers = gather.out(0)->uses;
    for (Node* quantizer : quantizers) {
      Value* codes =
          QuantizePart(graph_, quantizer, part, AmaxOf(part, quantizer));
      Builder b(graph_, part->name + ".", quantizer);
      b.set_metadata(quantizer->metadata);
      Value* all = b.Ours("AllGather", {codes}, gather.attributes);
      graph_.MoveOutput(quantizer->out(0), all->producer, 0);
      graph_.RemoveNode(quantizer);
    }
    graph_.RemoveNode(&gather);
  }

  void Quantize(const std::vector<Node*>& quantizers) {
    std::vector<Node*> weights;
    std::vector<Value*> parameters;
    for (Node* node : quantizers) {
      Value* x = node->in(0);
      // A parameter itself; of a rounded one the rounded values count.
      if (!x->producer) {
        weights.push_back(node);
        if (std::ranges::count(parameters, x) == 0) parameters.push_back(x);
      } else {
        Replace(node, AmaxOf(x, node));
      }
    }
    if (parameters.empty()) return;
    // In one all-reduce before all nodes.
    Builder b(graph_, "amax.", &graph_.nodes().front());
    const std::vector<Value*> amaxes =
        AmaxesOfWholes(b, parameters, mesh_, {kTensorRanks});
    for (size_t i = 0; i < amaxes.size(); ++i) amax_[parameters[i]] = amaxes[i];
    for (Node* node : weights) Replace(node, amax_.at(node->in(0)));
  }

  // The amax of the whole tensor. Each part has one.
  Value* AmaxOf(Value* part, Node* before) {
    Value*& known = amax_[part];
    if (!known) {
      Builder b(graph_, "amax.", before);
      known = MaxOver(b, b.Ours("Amax", {part}), mesh_, {kTensorRanks});
    }
    return known;
  }

  void Replace(Node* quantizer, Value* amax) {
    Value* codes = QuantizePart(graph_, quantizer, quantizer->in(0), amax);
    graph_.MoveOutput(quantizer->out(0), codes->producer, 0);
    graph_.RemoveNode(quantizer);
  }

  Graph& graph_;
  const Mesh& mesh_;
  bool new_scales_;
  std::unordered_map<const Value*, Value*> amax_;
};

}  // namespace

void ShareAmaxes(Graph& graph, const Mesh& mesh,
                 const std::set<std::string>& parts, bool new_scales) {
  AmaxSharer(graph, mesh, new_scales).Run(parts);
}

bool QuantizesByOneScale(const Node& node) {
  const CodeScale scale = FactsOf(node).scale;
  return scale == CodeScale::kMeasured || scale == CodeScale::kGiven;
}

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
