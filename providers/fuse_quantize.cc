// SPDX-License-Identifier: Apache-2.0
#include "providers/fuse_quantize.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/schemas/fused_quantize.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kTransposedCodes = 3;  // result of a quantizer

// Known before the step: state, or an element of it.
bool IsGiven(const Value* scale) {
  const Node* producer = scale->producer;
  if (!producer) return true;
  return std::ranges::all_of(producer->inputs(),
                             [](const Value* x) { return x && !x->producer; });
}

// The row whose op may take the node's place; null if there is none.
const FusedQuantizer* RowOf(const Node& node) {
  for (const FusedQuantizer& row : FusedQuantizers()) {
    bool complete = node.inputs().size() == row.operands.size() &&
                    std::ranges::count(node.inputs(), nullptr) == 0;
    if (node.op == row.producer && node.domain == row.domain && complete &&
        node.String("approximate", "none") ==
            (row.approximate.empty() ? "none" : row.approximate) &&
        node.Int("stash_type", 1) == static_cast<int64_t>(DType::kFloat)) {
      return &row;
    }
  }
  return nullptr;
}

class Fuser {
 public:
  Fuser(Graph& graph, const KernelRegistry& kernels)
      : graph_(graph), kernels_(kernels) {}

  void Run() {
    std::vector<std::pair<Node*, const FusedQuantizer*>> producers;
    for (Node& node : graph_.nodes()) {
      const FusedQuantizer* row = RowOf(node);
      if (row && kernels_.Find(kDomain, row->op)) {
        producers.emplace_back(&node, row);
      }
    }
    bool any = false;
    for (auto [node, row] : producers) {
      std::vector<Node*> quantizers = QuantizersOf(*node, *row);
      if (quantizers.empty()) continue;
      Fuse(*node, *row, quantizers);
      any = true;
    }
    // A scale may be read later than its new reader runs.
    if (any) graph_.Sort();
  }

 private:
  bool IsView(const Node& node) const {
    const KernelEntry* entry = kernels_.Find(node.domain, node.op);
    return entry && entry->traits.view;
  }

  // A quantizer of y or of a view of it; null if there is none that fits.
  Node* QuantizerOf(const Value* y, int64_t columns) const {
    if (!y || !y->concrete() || y->rank() == 0) return nullptr;
    for (Node* reader : y->uses) {
      if (reader->in(0) != y) continue;
      bool quantizes = reader->IsOurs("QuantizeWith") ||
                       reader->IsOurs("QuantizeWithTranspose");
      if (quantizes && reader->out(0) && IsGiven(reader->in(1)) &&
          (!reader->out(kTransposedCodes) || y->dim(-1) == columns)) {
        return reader;
      }
      if (!IsView(*reader)) continue;
      if (Node* found = QuantizerOf(reader->out(0), columns)) return found;
    }
    return nullptr;
  }

  // One for each result that the row quantizes; else none.
  std::vector<Node*> QuantizersOf(const Node& node,
                                  const FusedQuantizer& row) const {
    std::vector<Node*> found;
    for (size_t i : row.quantized) {
      const Value* y = node.out(i);
      if (!y || !y->concrete() || y->rank() == 0) return {};
      Node* quantizer = QuantizerOf(y, y->dim(-1));
      if (!quantizer) return {};
      const Node& first = found.empty() ? *quantizer : *found[0];
      if (y->narrow != node.out(row.quantized[0])->narrow ||
          first.Int("to", 0) != quantizer->Int("to", 0) ||
          first.Float("q_max", 0) != quantizer->Float("q_max", 0)) {
        return {};
      }
      found.push_back(quantizer);
    }
    return found;
  }

  static Attributes AttributesOf(const Node& node, const FusedQuantizer& row,
                                 const Node& quantizer) {
    Attributes attributes = quantizer.attributes;
    DType narrow = node.out(row.quantized[0])->narrow;
    attributes["round_to"] = static_cast<int64_t>(
        narrow == DType::kUndefined ? DType::kFloat : narrow);
    for (const AttributeDefinition& a : row.attributes) {
      if (a.kind == AttributeKind::kInt) {
        attributes[a.name] = node.Int(a.name, -1);
      } else {
        attributes[a.name] = node.Float(a.name, 1e-5f);
      }
    }
    return attributes;
  }

  void Fuse(Node& node, const FusedQuantizer& row,
            const std::vector<Node*>& quantizers) {
    std::vector<Value*> inputs = node.inputs();
    for (const Node* quantizer : quantizers) {
      inputs.push_back(quantizer->in(1));
    }
    Node* fused =
        graph_.AddNode(row.op, inputs, {},
                       AttributesOf(node, row, *quantizers[0]), kDomain, &node);
    fused->name = node.name;
    fused->metadata = node.metadata;
    fused->part = node.part;
    for (size_t i = 0; i < quantizers.size(); ++i) {
      Shape shape = *node.out(row.quantized[i])->shape;
      TakeOver(fused, row.Codes(i), quantizers[i], shape);
    }
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      Value* y = node.out(i);
      bool quantized = std::ranges::count(row.quantized, i) > 0;
      if (!y || (quantized && y->uses.empty() && !IsReturned(graph_, y))) {
        continue;
      }
      Move(y, fused, i);
    }
    graph_.RemoveNode(&node);
  }

  void Move(Value* y, Node* fused, size_t i) {
    Value* made = graph_.AddOutput(fused, i, graph_.FreshName(y->name));
    made->dtype = y->dtype;
    made->shape = y->shape;
    graph_.MoveOutput(y, fused, i);
  }

  // Makes the quantizer's results those of `fused` from `first` on. `shape` is
  // that of the result that is quantized.
  void TakeOver(Node* fused, size_t first, Node* quantizer,
                const Shape& shape) {
    for (size_t i = 0; i < quantizer->outputs().size(); ++i) {
      Value* made = quantizer->out(i);
      if (!made) continue;
      if (i > 0 || *made->shape == shape) {
        Move(made, fused, first + i);
        continue;
      }
      Value* q = graph_.AddOutput(fused, first, graph_.FreshName(made->name));
      q->dtype = made->dtype;
      q->shape = shape;
      Builder b(graph_, made->name + ".", quantizer);
      b.set_metadata(quantizer->metadata);
      Value* viewed = b.Reshape(q, *made->shape);
      graph_.MoveOutput(made, viewed->producer, 0);
    }
    Value* x = quantizer->in(0);
    graph_.RemoveNode(quantizer);
    RemoveViews(x);
  }

  // Removes the views that made x, as far as nobody reads them.
  void RemoveViews(Value* x) {
    while (x->uses.empty() && !IsReturned(graph_, x) && IsView(*x->producer)) {
      Node* view = x->producer;
      x = view->in(0);
      graph_.RemoveNode(view);
    }
  }

  Graph& graph_;
  const KernelRegistry& kernels_;
};

}  // namespace

void FuseQuantize(Graph& graph, const KernelRegistry& kernels) {
  Fuser(graph, kernels).Run();
}

}  // namespace onnx_fp8
