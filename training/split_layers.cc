// SPDX-License-Identifier: Apache-2.0
#include "training/split_layers.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/views.h"
#include "training/over_ranks.h"

namespace onnx_fp8 {
namespace {

class LayerSplitter {
 public:
  LayerSplitter(Graph& graph, const Mesh& mesh, int64_t rank)
      : graph_(graph), mesh_(mesh), rank_(rank) {
    whole_.insert(graph.outputs.begin(), graph.outputs.end());
    for (const Value* value : graph.CapturedBySubgraphs()) {
      whole_.insert(value);
    }
  }

  SplitLayersReport Run() {
    FindRegions();
    std::vector<Node*> nodes;
    for (Node& node : graph_.nodes()) {
      if (Touches(node)) nodes.push_back(&node);
    }
    for (auto& [value, split] : splits_) Divide(value, split);
    for (size_t i = 0; i < parts_.size(); ++i) {
      report_.layers[i].part = *parts_[i]->shape;
    }
    for (Node* node : nodes) Fit(*node);
    for (Node* node : nodes) {
      if (IsRows(node)) {
        AddUp(*node);
      } else {
        CopyWholeOperands(*node);
      }
    }
    return std::move(report_);
  }

 private:
  void FindRegions() {
    std::vector<Node*> layers, by_size;
    for (Node& node : graph_.nodes()) {
      if (IsLayer(node)) layers.push_back(&node);
    }
    by_size = layers;
    std::ranges::stable_sort(by_size, std::greater(), [](const Node* node) {
      return NumElements(*node->in(1)->shape);
    });
    std::unordered_map<const Node*, std::string> reasons;
    for (Node* node : by_size) {
      if (Find(node->in(1))) continue;
      SplitRegion region(mesh_.tp, whole_);
      reasons[node] = region.Grow(node->in(0), {node->in(0)->rank() - 1, 1});
      if (reasons[node].empty()) Take(region);
    }
    for (Node* node : layers) {
      const Value* operand = node->in(1);
      LayerSplit layer{WeightBehind(node->in(1))->name,
                       {},
                       LayerSplit::kWhole,
                       reasons[node]};
      if (Find(operand)) {
        layer.kind = IsRows(node) ? LayerSplit::kRows : LayerSplit::kColumns;
        layer.why.clear();
      }
      report_.layers.push_back(layer);
      parts_.push_back(operand);
    }
  }

  static bool IsLayer(const Node& node) {
    return node.Is("Gemm") && node.in(1)->rank() == 2 &&
           WeightBehind(node.in(1)) != nullptr;
  }

  void Take(const SplitRegion& region) {
    for (Value* value : region.values()) {
      splits_.emplace_back(value, *region.Find(value));
      whole_.insert(value);  // it has its division
      divided_.insert(value);
    }
    rows_.insert(region.row_parallel().begin(), region.row_parallel().end());
  }

  bool Find(const Value* value) const { return divided_.contains(value); }
  bool IsRows(Node* node) const { return rows_.contains(node); }

  bool Touches(const Node& node) const {
    auto divided = [this](const Value* value) { return Find(value); };
    return std::ranges::any_of(node.inputs(), divided) ||
           std::ranges::any_of(node.outputs(), divided);
  }

  void Divide(Value* value, const AxisSplit& split) {
    if (value->is_initializer()) {
      report_.initializers[value->name] = split;
      value->data = value->is_constant()
                        ? PartOf(value->data, split, rank_, mesh_.tp)
                        : Tensor::Zeros(value->dtype,
                                        PartOf(*value->shape, split, mesh_.tp));
    }
    value->shape = PartOf(*value->shape, split, mesh_.tp);
  }

  // Sizes that a node names become those of the parts.
  void Fit(Node& node) {
    node.source = -1;
    Builder b(graph_, "", &node);
    if (node.Is("Reshape")) {
      graph_.SetInput(&node, 1, b.Ints(*node.out(0)->shape));
      node.attributes["allowzero"] = int64_t{1};
    } else if (node.Is("Split") && node.in(1)) {
      std::vector<int64_t> sizes;
      const int64_t axis = node.Int("axis", 0);
      for (const Value* out : node.outputs()) sizes.push_back(out->dim(axis));
      graph_.SetInput(&node, 1, b.Ints(sizes));
    }
    for (const char* heads : {"heads", "kv_heads"}) {
      if (node.domain != kDomain || !node.Has(heads)) continue;
      node.attributes[heads] = node.Int(heads, 0) / mesh_.tp;
    }
  }

  // The ranks add up the node's results; the bias comes once, behind them.
  void AddUp(Node& node) {
    Value *y = node.out(0), *bias = node.in(2);
    if (bias) graph_.RemoveInput(&node, 2);
    Builder b(graph_, y->name + ".", After(node));
    b.set_metadata(node.metadata);
    Value* sum = SumOver(b, y, mesh_, {kTensorRanks});
    Node* reduce = sum->producer;
    Value* all = bias ? b.Add(sum, bias) : sum;
    graph_.MoveOutput(y, all->producer, 0);
    graph_.SetInput(reduce, 0, node.out(0));
    graph_.Rename(node.out(0), graph_.FreshName(y->name + ".part"));
  }

  Node* After(const Node& node) const {
    auto at = std::ranges::find_if(graph_.nodes(),
                                   [&](Node& n) { return &n == &node; });
    return ++at == graph_.nodes().end() ? nullptr : &*at;
  }

  // A rank's part of a layer gives a part of the gradient of what all ranks
  // have whole.
  void CopyWholeOperands(Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      Value* in = node.in(i);
      if (!in || Find(in) || in->is_constant() || !IsFloat(in->dtype)) continue;
      Value*& copy = copies_[in];
      if (!copy) {
        Builder b(graph_, in->name + ".", &node);
        copy = b.Ours("CopyToRanks", {in}, GroupOf(mesh_, kTensorRanks));
      }
      graph_.SetInput(&node, i, copy);
    }
  }

  Graph& graph_;
  Mesh mesh_;
  int64_t rank_;
  std::unordered_set<const Value*> whole_;
  std::unordered_set<const Value*> divided_;
  std::vector<std::pair<Value*, AxisSplit>> splits_;
  std::unordered_set<Node*> rows_;
  std::unordered_map<Value*, Value*> copies_;
  std::vector<const Value*> parts_;  // weights of the report's layers
  SplitLayersReport report_;
};

}  // namespace

const char* Name(LayerSplit::Kind kind) {
  switch (kind) {
    case LayerSplit::kWhole:
      return "whole";
    case LayerSplit::kColumns:
      return "columns";
    case LayerSplit::kRows:
      return "rows";
  }
  return "?";
}

SplitLayersReport SplitLayers(Graph& graph, const Mesh& mesh,
                              int64_t tensor_rank) {
  return LayerSplitter(graph, mesh, tensor_rank).Run();
}

void RemoveCopiesToRanks(Graph& graph) {
  auto& nodes = graph.nodes();
  for (auto it = nodes.begin(); it != nodes.end();) {
    Node* node = &*it++;
    if (!node->IsOurs("CopyToRanks")) continue;
    graph.ReplaceUses(node->out(0), node->in(0));
    graph.RemoveNode(node);
  }
}

}  // namespace onnx_fp8
