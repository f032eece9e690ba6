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
#include "training/split_vocabulary.h"

namespace onnx_fp8 {
namespace {

class LayerSplitter {
 public:
  LayerSplitter(Graph& graph, const Mesh& mesh, int64_t rank)
      : graph_(graph), mesh_(mesh), rank_(rank) {
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
      if (!summed_.contains(node)) {
        CopyWholeOperands(*node);
      } else if (node->Is("Gather")) {
        GatherFromParts(graph_, *node, mesh_, rank_, WholeOf(node->in(0))[0]);
      } else {
        AddUp(*node);
      }
    }
    for (auto& [value, split] : splits_) {
      if (std::ranges::count(graph_.outputs, value) > 0) Join(value, split);
    }
    for (Node* loss : losses_) {
      CrossEntropyOfParts(graph_, *loss, mesh_, rank_, WholeOf(loss->in(0))[1]);
    }
    return std::move(report_);
  }

 private:
  void FindRegions() {
    std::vector<Node*> layers, by_size;
    for (Node& node : graph_.nodes()) {
      if (IsLayer(node) || IsEmbedding(node)) layers.push_back(&node);
    }
    by_size = layers;
    std::ranges::stable_sort(by_size, std::greater(), [](const Node* node) {
      return NumElements(*WeightOf(*node)->shape);
    });
    std::unordered_map<const Node*, std::string> reasons;
    for (Node* node : by_size) {
      if (IsLayer(*node)) reasons[node] = Try(node->in(0), {1, 1});
    }
    for (Node* node : by_size) {
      // The reason that counts is that of the inputs.
      if (IsLayer(*node)) Try(node->out(0), {1, 1}, true);
    }
    for (Node* node : by_size) {
      if (IsLayer(*node)) continue;
      const bool known = classes_.contains(WeightOf(*node)->dim(0));
      reasons[node] = known ? Try(WeightOf(*node), {0, 1}, true)
                            : "it has no row for each class of a divided loss";
    }
    for (Node* node : layers) Report(*node, reasons[node]);
  }

  void Report(const Node& node, const std::string& why) {
    Value* weight = WeightOf(node);
    LayerSplit layer{WeightBehind(weight)->name, {}, LayerSplit::kWhole, why};
    if (Find(weight)) {
      layer.kind = !IsLayer(node)            ? LayerSplit::kTable
                   : summed_.contains(&node) ? LayerSplit::kRows
                                             : LayerSplit::kColumns;
      layer.why.clear();
    }
    report_.layers.push_back(layer);
    parts_.push_back(weight);
  }

  // The reason why the value can't be divided; "" if it is.
  std::string Try(Value* value, const AxisSplit& split, bool uneven = false) {
    if (Find(value)) return "";
    SplitRegion region(mesh_.tp, whole_);
    if (uneven) region.AllowUneven();
    std::string why = region.Grow(value, split);
    if (why.empty()) Take(region);
    return why;
  }

  static bool IsEmbedding(const Node& node) {
    return node.Is("Gather") && node.in(0)->rank() == 2 &&
           node.Int("axis", 0) == 0 && WeightBehind(node.in(0)) != nullptr;
  }

  static Value* WeightOf(const Node& node) {
    return node.in(node.Is("Gather") ? 0 : 1);
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
    summed_.insert(region.summed().begin(), region.summed().end());
    for (Node* loss : region.losses()) {
      losses_.push_back(loss);
      classes_.insert(loss->in(0)->dim(1));
    }
  }

  bool Find(const Value* value) const { return divided_.contains(value); }

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
    wholes_[value] = *value->shape;
    value->shape = PartOf(*value->shape, split, mesh_.tp);
  }

  const Shape& WholeOf(const Value* value) const { return wholes_.at(value); }

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

  // An output of the graph becomes the whole value; readers keep the part.
  void Join(Value* value, const AxisSplit& split) {
    Builder b(graph_, value->name + ".");
    const std::vector<Node*> readers = value->uses;
    const Shape part = *value->shape;
    const Shape whole = WholeOf(value);
    const int64_t chunk = ChunkOf(whole, split, mesh_.tp);
    const int64_t blocks = NumElements(part) / chunk;
    Value* x = b.Reshape(value, {1, blocks, chunk});
    Node* first = x->producer;
    x = b.Ours("AllGather", {x}, GroupOf(mesh_, kTensorRanks));
    x = b.Reshape(b.Transpose(x, {1, 0, 2}), {blocks, mesh_.tp * chunk});
    if (!IsEven(whole, split, mesh_.tp)) {
      const int64_t exist = NumElements(whole) / blocks;
      x = b.Op("Slice", {x, b.Ints({0}), b.Ints({exist}), b.Ints({1})});
    }
    x = b.Op("Reshape", {x, b.Ints(whole)}, {{"allowzero", int64_t{1}}});
    graph_.MoveOutput(value, x->producer, 0);
    std::swap(value->shape, x->shape);
    wholes_[x] = whole;
    graph_.SetInput(first, 0, x);
    for (Node* reader : readers) {
      for (size_t i = 0; i < reader->inputs().size(); ++i) {
        if (reader->in(i) == value) graph_.SetInput(reader, i, x);
      }
    }
    graph_.Rename(x, graph_.FreshName(value->name + ".part"));
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
  std::unordered_set<const Node*> summed_;
  std::vector<Node*> losses_;
  std::unordered_set<int64_t> classes_;  // of divided losses, in all
  std::unordered_map<Value*, Value*> copies_;
  std::unordered_map<const Value*, Shape> wholes_;  // of divided values
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
    case LayerSplit::kTable:
      return "table";
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
