// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/fuse_quantize.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/op_facts.h"
#include "graph/schemas/fused_quantize.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8 {
namespace {

// Whether the row's op may take the node's place.
bool IsProducer(const Node& node, const FusedQuantizer& row) {
  bool complete = node.inputs().size() == row.operands.size() &&
                  std::ranges::count(node.inputs(), nullptr) == 0;
  return node.op == row.producer && node.domain == row.domain && complete &&
         node.String("approximate", "none") ==
             (row.approximate.empty() ? "none" : row.approximate) &&
         node.Int("stash_type", 1) == static_cast<int64_t>(DType::kFloat);
}

// Whether the node works on rows of y's last axis.
bool IsByRows(const Node& node, const Value* y) {
  int64_t axis = node.Int("axis", -1);
  return axis == -1 || axis == y->rank() - 1;
}

// Whether it is a quantizer of y, as rows of `columns` elements, of the row's
// kind.
bool Fits(const Node& quantizer, const Value* y, int64_t columns,
          const FusedQuantizer& row) {
  if (!quantizer.out(0)) return false;
  if (row.by_rows) {
    int64_t block = quantizer.Int("block_columns", 0);
    return quantizer.IsOurs("QuantizeBlock") && y->dim(-1) == columns &&
           quantizer.Int("block_rows", 0) == 1 &&
           (block == 0 || block >= columns);
  }
  bool quantizes = row.padded ? quantizer.IsOurs("QuantizeWithPadded")
                              : quantizer.IsOurs("QuantizeWith") ||
                                    quantizer.IsOurs("QuantizeWithTranspose");
  bool by_columns = row.padded || quantizer.out(kTransposedCodes);
  return quantizes && IsGiven(quantizer.in(1)) &&
         (!by_columns || y->dim(-1) == columns);
}

class Fuser {
 public:
  Fuser(Graph& graph, const KernelRegistry& kernels)
      : graph_(graph), kernels_(kernels) {}

  void Run() {
    std::vector<Node*> producers;
    for (Node& node : graph_.nodes()) {
      if (!RowsOf(node).empty()) producers.push_back(&node);
    }
    bool any = false;
    for (Node* node : producers) {
      for (const FusedQuantizer* row : RowsOf(*node)) {
        std::vector<Found> quantizers = QuantizersOf(*node, *row);
        if (quantizers.empty()) continue;
        Fuse(*node, *row, quantizers);
        any = true;
        break;
      }
    }
    // A scale may be read later than its new reader runs.
    if (any) graph_.Sort();
  }

 private:
  struct Found {
    Node* quantizer = nullptr;       // null: there is none that fits
    DType round_to = DType::kFloat;  // before
  };

  // The rows whose ops may take the node's place.
  std::vector<const FusedQuantizer*> RowsOf(const Node& node) const {
    std::vector<const FusedQuantizer*> rows;
    for (const FusedQuantizer& row : FusedQuantizers()) {
      if (IsProducer(node, row) && kernels_.Find(kDomain, row.op)) {
        rows.push_back(&row);
      }
    }
    return rows;
  }

  bool IsView(const Node& node) const {
    const KernelEntry* entry = kernels_.Find(node.domain, node.op);
    return entry && entry->traits.view;
  }

  // A quantizer of y, which is rounded to the dtype `to`, or of a view of it.
  // It may round it first, if y is not rounded yet.
  Found QuantizerOf(const Value* y, int64_t columns, const FusedQuantizer& row,
                    DType to) const {
    struct Open {
      const Value* y;
      Node* reader;
      DType to;
    };
    std::vector<Open> open;
    auto add_readers = [&](const Value* value, DType dtype) {
      if (!value || !value->concrete() || value->rank() == 0) return;
      for (size_t i = value->uses.size(); i-- > 0;) {
        Node* reader = value->uses[i];
        if (reader->in(0) == value) open.push_back({value, reader, dtype});
      }
    };
    add_readers(y, to);
    while (!open.empty()) {
      auto [value, reader, dtype] = open.back();
      open.pop_back();
      if (Fits(*reader, value, columns, row)) return {reader, dtype};
      bool rounds =
          FactsOf(*reader).kind == OpKind::kRound && dtype == DType::kFloat;
      if (!IsView(*reader) && !rounds) continue;
      add_readers(reader->out(0),
                  rounds ? static_cast<DType>(reader->Int("to", 0)) : dtype);
    }
    return {};
  }

  static DType KeptDType(const Value* y) {
    return y->narrow == DType::kUndefined ? DType::kFloat : y->narrow;
  }

  // One for each result that the row quantizes; else none.
  std::vector<Found> QuantizersOf(const Node& node,
                                  const FusedQuantizer& row) const {
    std::vector<Found> all;
    for (size_t i : row.quantized) {
      const Value* y = node.out(i);
      if (!y || !y->concrete() || y->rank() == 0) return {};
      if ((row.by_rows || row.padded) && !IsByRows(node, y)) return {};
      Found found = QuantizerOf(y, y->dim(-1), row, KeptDType(y));
      if (!found.quantizer) return {};
      all.push_back(found);
      const Node &first = *all[0].quantizer, &last = *found.quantizer;
      if (all[0].round_to != found.round_to ||
          first.Int("to", 0) != last.Int("to", 0) ||
          first.Float("q_max", 0) != last.Float("q_max", 0)) {
        return {};
      }
    }
    return all;
  }

  static Attributes AttributesOf(const Node& node, const FusedQuantizer& row,
                                 const Found& found) {
    Attributes attributes = found.quantizer->attributes;
    attributes.erase("block_rows");
    attributes.erase("block_columns");
    attributes["round_to"] = static_cast<int64_t>(found.round_to);
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
            const std::vector<Found>& quantizers) {
    std::vector<Value*> inputs = node.inputs();
    for (const Found& found : quantizers) {
      if (!row.by_rows) inputs.push_back(found.quantizer->in(1));
    }
    Node* fused =
        graph_.AddNode(row.op, inputs, {},
                       AttributesOf(node, row, quantizers[0]), kDomain, &node);
    fused->name = node.name;
    fused->metadata = node.metadata;
    fused->part = node.part;
    for (size_t i = 0; i < quantizers.size(); ++i) {
      Node* quantizer = quantizers[i].quantizer;
      const Value* codes_of =
          row.padded ? quantizer->out(0) : node.out(row.quantized[i]);
      Shape shape = *codes_of->shape;
      TakeOver(fused, row.Codes(i), quantizer, shape);
    }
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      Value* y = node.out(i);
      bool quantized = std::ranges::count(row.quantized, i) > 0;
      if (!y || (quantized && y->uses.empty() && !IsReturned(graph_, y))) {
        continue;
      }
      graph_.MoveToNewOutput(y, fused, i);
    }
    graph_.RemoveNode(&node);
  }

  // Turns the quantizer's results into results of `fused`, from `first` on.
  // `fused` writes codes of this shape.
  void TakeOver(Node* fused, size_t first, Node* quantizer,
                const Shape& shape) {
    for (size_t i = 0; i < quantizer->outputs().size(); ++i) {
      Value* made = quantizer->out(i);
      if (!made) continue;
      if (i > 0 || *made->shape == shape) {
        graph_.MoveToNewOutput(made, fused, first + i);
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
    RemoveUnread(x);
  }

  // Removes the views and the RoundTo that made x, as far as nobody reads them.
  void RemoveUnread(Value* x) {
    while (x->uses.empty() && !IsReturned(graph_, x) &&
           (IsView(*x->producer) ||
            FactsOf(*x->producer).kind == OpKind::kRound)) {
      Node* maker = x->producer;
      x = maker->in(0);
      graph_.RemoveNode(maker);
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
