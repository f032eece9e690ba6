// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/split_layers.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "collectives/mesh.h"
#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/views.h"
#include "training/ranks/over_ranks.h"

namespace onnx_fp8 {
namespace {

// Embeddings and losses of which each rank of the axis tp has a part of the
// vocabulary (Megatron-LM's VocabParallelEmbedding and
// vocab_parallel_cross_entropy).

// Positions in the part [begin, begin + n) of a vocabulary; 0 for others.
struct Positions {
  Value* inside;  // whether it is one of the part
  Value* at;
};

Positions InPart(Builder& b, Value* ids, int64_t begin, int64_t n) {
  Value* at = b.Sub(ids, b.Scalar(static_cast<double>(begin), ids));
  Value* inside =
      b.Op("And", {b.Op("GreaterOrEqual", {at, b.Scalar(0, ids)}),
                   b.Op("Less", {at, b.Scalar(static_cast<double>(n), ids)})});
  return {inside, b.Op("Where", {inside, at, b.Scalar(0, ids)})};
}

// The name by which an error of `node` names it.
std::string NameOf(const Node& node) {
  return node.name.empty() ? node.out(0)->name : node.name;
}

// Ids from 0 on. Errors, of a Gather of the same name: no id of `rows`.
Value* CheckedIds(Builder& b, const Node& gather, int64_t rows) {
  Tensor table = Tensor::Allocate(DType::kInt64, {rows});
  std::iota(table.data<int64_t>(), table.data<int64_t>() + rows, 0);
  Value* ids = b.Op("Gather", {b.Constant(table), gather.in(1)});
  ids->producer->name = NameOf(gather);
  return ids;
}

// Zero. Errors, of a node of the loss's name: a label is no class. The least
// and the largest label go to two samples, whose lse is the logarithm of the
// number of classes.
Value* CheckedLabels(Builder& b, const Node& loss, Value* labels,
                     int64_t classes) {
  const Attributes keep = {{"keepdims", int64_t{1}}};
  Value* ends = b.Op("Concat",
                     {b.Op("ReduceMin", {labels, b.Ints({0})}, keep),
                      b.Op("ReduceMax", {labels, b.Ints({0})}, keep)},
                     {{"axis", int64_t{0}}});
  Value* scores =
      b.Constant(Tensor::Zeros(loss.in(0)->dtype, Shape{2, classes}));
  Value* lse =
      b.Ops("CrossEntropy", {scores, ends}, 2, loss.attributes, kDomain)[1];
  lse->producer->name = NameOf(loss);
  return b.Mul(b.ReduceSum(lse, {0}, false), b.Scalar(0, lse));
}

// `x` if the condition holds, else zeros. A Where with a flag of one element is
// a branch (needed_when.h): a rank whose flag is false drops all gradients in
// front of the branch. Here the gradients of other ranks must stay, so a Gather
// chooses between zeros and `x`.
Value* OrZero(Builder& b, Value* condition, Value* x) {
  if (NumElements(*condition->shape) == 1) {
    const Shape row = {1, NumElements(*x->shape)};
    Value* rows = b.Op(
        "Concat", {b.Constant(Tensor::Zeros(x->dtype, row)), b.Reshape(x, row)},
        {{"axis", int64_t{0}}});
    Value* at = b.Reshape(b.Cast(condition, DType::kInt64), {1});
    return b.Reshape(b.Op("Gather", {rows, at}), *x->shape);
  }
  return b.Op("Where", {condition, x, b.Scalar(0, x)});
}

// The first `n` scores of each sample; −∞ in place of the others.
Value* OfClasses(Builder& b, Value* scores, int64_t n) {
  Tensor exists = Tensor::Allocate(DType::kBool, {1, scores->dim(1)});
  for (int64_t i = 0; i < exists.size(); ++i) {
    exists.data<bool>()[i] = i < n;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return b.Op("Where",
              {b.Constant(exists), scores, b.Scalar(-kInfinity, scores)});
}

// Rank r has the rows from r n on, n of them, of the table of `rows` rows that
// `gather` reads along its first axis. Returns the rows that `gather` finds,
// with zeros in place of other ranks' rows: the ranks' results add up to the
// whole. `behind` adds nodes behind `gather`. Indices below 0 count from the
// end, as ONNX has it, and one that is outside is an error on all ranks.
Value* OwnRows(Builder& behind, Node& gather, int64_t rank, int64_t rows) {
  Value* y = gather.out(0);
  const int64_t n = gather.in(0)->dim(0);
  Graph& graph = behind.graph();
  Builder before(graph, y->name + ".", &gather);
  Value* ids = CheckedIds(before, gather, rows);
  const Positions part = InPart(before, ids, rank * n, n);
  graph.SetInput(&gather, 1, part.at);
  Shape column = *ids->shape;
  column.push_back(1);
  return OrZero(behind, behind.Reshape(part.inside, column), y);
}

// `loss` is a CrossEntropy of scores (N, n) and labels (N): its first result
// becomes the loss over all `classes`. Scores of the last rank that belong to
// no class do not count. With s the scores, m an upper bound of max s, t the
// label's score:
//   mean over counted labels of  m + log(sum of exp(s - m)) - t
// The sum, the bound and t are joined over the ranks: 3 N floats of a rank. A
// label that is no class is an error on all of them.
void CrossEntropyOfParts(Graph& graph, Node& loss, const Mesh& mesh,
                         int64_t rank, int64_t classes) {
  Value *scores = loss.in(0), *labels = loss.in(1), *result = loss.out(0);
  const int64_t samples = scores->dim(0), n = scores->dim(1);
  const Shape column = {samples, 1};
  Builder b(graph, result->name + ".", &loss);
  b.set_metadata(loss.metadata);
  const Attributes keep = {{"keepdims", int64_t{1}}};
  const Axes ranks = {kTensorRanks};
  if (n * mesh.tp > classes) scores = OfClasses(b, scores, classes - rank * n);
  // Any bound near the maximum will do. Rounded up it has no gradient.
  Value* largest = b.Op("ReduceMax", {scores, b.Ints({1})}, keep);
  Value* bound = b.Op("Ceil", {MaxOver(b, largest, mesh, ranks)});
  Value* powers = b.Op("Exp", {b.Sub(scores, bound)});
  Value* total = SumOver(b, b.ReduceSum(powers, {1}, true), mesh, ranks);
  Value* lse = b.Add(bound, b.Op("Log", {total}));
  const Positions part = InPart(b, labels, rank * n, n);
  Value* own = b.Op("GatherElements", {scores, b.Reshape(part.at, column)},
                    {{"axis", int64_t{1}}});
  own = OrZero(b, b.Reshape(part.inside, column), own);
  Value* losses = b.Sub(lse, SumOver(b, own, mesh, ranks));
  const auto ignored = static_cast<double>(loss.Int("ignore_index", -100));
  Value* counts =
      b.Op("Not", {b.Op("Equal", {labels, b.Scalar(ignored, labels)})});
  Value* counted = b.Op("Where", {counts, labels, b.Scalar(0, labels)});
  Value* zero = CheckedLabels(b, loss, counted, classes);
  Value* sum =
      b.ReduceSum(OrZero(b, b.Reshape(counts, column), losses), {0, 1}, false);
  Value* count = b.ReduceSum(b.Cast(counts, losses->dtype), {0}, false);
  Value* mean = b.Add(b.Div(sum, count), zero);
  graph.MoveOutput(result, mean->producer, 0);
  graph.RemoveNode(&loss);
}

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
    FindTokens();
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
      if (layers_.summed.contains(node)) {
        AddUp(*node);
      } else {
        GatherTokens(*node);
        CopyWholeOperands(*node);
      }
    }
    for (const SlicedOperand& operand : sliced_) Slice(operand);
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
      // The inputs' reason counts.
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
      layer.kind = !IsLayer(node)                   ? LayerSplit::kTable
                   : layers_.summed.contains(&node) ? LayerSplit::kRows
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

  void Take(const SplitRegion& region) {
    for (Value* value : region.values()) {
      splits_.emplace_back(value, *region.Find(value));
      whole_.insert(value);  // it has its division
      divided_.insert(value);
      layers_.values.insert(value);
    }
    layers_.summed.insert(region.summed().begin(), region.summed().end());
    for (Node* loss : region.losses()) {
      losses_.push_back(loss);
      classes_.insert(loss->in(0)->dim(1));
    }
  }

  // Between the layers the ranks divide the tokens: a part of all samples, or
  // the same part of each sample.
  void FindTokens() {
    for (Node& node : graph_.nodes()) {
      if (!layers_.summed.contains(&node) || !IsLayer(node)) continue;
      Value* y = node.out(0);
      if (Find(y)) continue;
      std::string why = TryTokens(y, 1);
      const int64_t samples = SamplesOf(y);
      if (why.empty() || (samples > 1 && TryTokens(y, samples).empty())) {
        continue;
      }
      report_.whole_tokens = why;
    }
  }

  // The first axis of the value that has the rows of `y` as two axes.
  static int64_t SamplesOf(const Value* y) {
    for (const Node* reader : y->uses) {
      const Value* out = reader->out(0);
      if (reader->Is("Reshape") && out->rank() == 3) return out->dim(0);
    }
    return 1;
  }

  std::string TryTokens(Value* y, int64_t blocks) {
    SplitRegion region(mesh_.tp, whole_);
    region.DivideTokens(&layers_);
    std::string why = region.Grow(y, {0, blocks});
    if (!why.empty()) return why;
    report_.divides_tokens = true;
    for (Value* value : region.values()) {
      splits_.emplace_back(value, *region.Find(value));
      whole_.insert(value);
      divided_.insert(value);
      tokens_[value] = *region.Find(value);
    }
    sliced_.insert(sliced_.end(), region.sliced().begin(),
                   region.sliced().end());
    return "";
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

  // Sizes that a node names become sizes of the parts.
  void Fit(Node& node) {
    node.source = -1;
    Builder b(graph_, "", &node);
    if (node.Is("Reshape")) {
      graph_.SetInput(&node, 1, b.Ints(*node.out(0)->shape));
      node.attributes["allowzero"] = int64_t{1};
    } else if (node.Is("Expand")) {
      graph_.SetInput(&node, 1, b.Ints(*node.out(0)->shape));
    } else if (node.Is("Dropout")) {
      // Ranks draw other numbers for other elements.
      const std::string& known =
          node.name.empty() ? node.out(0)->name : node.name;
      node.name = Concat(known, ".rank", rank_);
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

  // The results of `make`, which reads `value`, take its name; what its
  // producer gives is then a ".part". `follows`: whether earlier readers read
  // the results.
  template <typename F>
  void Replace(Value* value, bool follows, F make) {
    const std::vector<Node*> before = value->uses;
    Value* part = make(value);
    graph_.MoveOutput(value, part->producer, 0);
    std::swap(value->shape, part->shape);
    const std::vector<Node*> readers = value->uses;
    for (Node* reader : readers) {
      if (follows && std::ranges::count(before, reader) > 0) continue;
      for (size_t i = 0; i < reader->inputs().size(); ++i) {
        if (reader->in(i) == value) graph_.SetInput(reader, i, part);
      }
    }
    graph_.Rename(part, graph_.FreshName(value->name + ".part"));
    wholes_[part] = wholes_.contains(value) ? wholes_[value] : *part->shape;
  }

  // The ranks add up the node's results; the bias comes once, behind them.
  void AddUp(Node& node) {
    Value *y = node.out(0), *bias = node.Is("Gather") ? nullptr : node.in(2);
    if (bias) graph_.RemoveInput(&node, 2);
    Builder b(graph_, y->name + ".", graph_.NodeBehind(node));
    b.set_metadata(node.metadata);
    auto tokens = tokens_.find(y);
    if (tokens != tokens_.end()) y->shape = WholeOf(y);
    Replace(y, true, [&](Value* own) {
      if (node.Is("Gather")) {
        own = OwnRows(b, node, rank_, WholeOf(node.in(0))[0]);
      }
      if (tokens == tokens_.end()) {
        Value* sum = SumOver(b, own, mesh_, {kTensorRanks});
        return bias ? b.Add(sum, bias) : sum;
      }
      Value* sum = Scattered(b, own, tokens->second);
      return bias ? b.Add(sum, CopyToRanks(b, bias)) : sum;
    });
  }

  // This rank's part of the sum over the ranks.
  Value* Scattered(Builder& b, Value* x, const AxisSplit& split) {
    const Attributes group = GroupOf(mesh_, kTensorRanks);
    if (split == AxisSplit{0, 1}) return b.Ours("ReduceScatter", {x}, group);
    const Shape whole = *x->shape;
    const int64_t chunk = ChunkOf(whole, split, mesh_.tp);
    const int64_t blocks = NumElements(whole) / chunk / mesh_.tp;
    x = b.Transpose(b.Reshape(x, {blocks, mesh_.tp, chunk}), {1, 0, 2});
    x = b.Ours("ReduceScatter", {x}, group);
    return b.Reshape(x, PartOf(whole, split, mesh_.tp));
  }

  // The whole of which x is this rank's part.
  Value* Gathered(Builder& b, Value* x, const AxisSplit& split,
                  const Shape& whole) {
    const Attributes group = GroupOf(mesh_, kTensorRanks);
    const bool even = IsEven(whole, split, mesh_.tp);
    if (even && split == AxisSplit{0, 1}) {
      return b.Ours("AllGather", {x}, group);
    }
    const int64_t chunk = ChunkOf(whole, split, mesh_.tp);
    const int64_t blocks = NumElements(*x->shape) / chunk;
    x = b.Ours("AllGather", {b.Reshape(x, {1, blocks, chunk})}, group);
    x = b.Reshape(b.Transpose(x, {1, 0, 2}), {blocks, mesh_.tp * chunk});
    if (!even) {
      const int64_t exist = NumElements(whole) / blocks;
      x = b.Op("Slice", {x, b.Ints({0}), b.Ints({exist}), b.Ints({1})});
    }
    return b.Reshape(x, whole);
  }

  // An output of the graph becomes the whole value; readers keep the part.
  void Join(Value* value, const AxisSplit& split) {
    Builder b(graph_, value->name + ".");
    Replace(value, false, [&](Value* part) {
      return Gathered(b, part, split, WholeOf(value));
    });
  }

  // A divided layer reads all tokens.
  void GatherTokens(Node& node) {
    Value* x = node.in(0);
    auto tokens = tokens_.find(x);
    const bool ends = tokens != tokens_.end() && IsLayer(node) &&
                      layers_.values.contains(node.out(0));
    if (!ends) return;
    Value*& all = gathered_[x];
    if (!all) {
      Builder b(graph_, x->name + ".", &node);
      b.set_metadata(node.metadata);
      all = Gathered(b, x, tokens->second, WholeOf(x));
      divided_.insert(all);  // its gradient adds up the ranks'
    }
    graph_.SetInput(&node, 0, all);
  }

  Value* CopyToRanks(Builder& b, Value* x) {
    return b.Ours("CopyToRanks", {x}, GroupOf(mesh_, kTensorRanks));
  }

  bool IsSliced(const Node& node, size_t input) const {
    return std::ranges::any_of(sliced_, [&](const SlicedOperand& operand) {
      return operand.node == &node && operand.input == input;
    });
  }

  // This rank's part of an operand.
  void Slice(const SlicedOperand& operand) {
    Value* x = operand.node->in(operand.input);
    Builder b(graph_, x->name + ".", operand.node);
    const int64_t axis = operand.split.axis, n = x->dim(axis) / mesh_.tp;
    if (!x->is_input) x = CopyToRanks(b, x);
    x = b.Op("Slice", {x, b.Ints({rank_ * n}), b.Ints({(rank_ + 1) * n}),
                       b.Ints({axis})});
    report_.slices.push_back(x->name);
    graph_.SetInput(operand.node, operand.input, x);
  }

  // A rank's part of a layer gives a part of the gradient of what all ranks
  // have whole.
  void CopyWholeOperands(Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      Value* in = node.in(i);
      if (!in || Find(in) || in->is_constant() || !IsFloat(in->dtype)) continue;
      if (IsSliced(node, i)) continue;
      Value*& copy = copies_[in];
      if (!copy) {
        Builder b(graph_, in->name + ".", &node);
        copy = CopyToRanks(b, in);
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
  DividedLayers layers_;
  std::unordered_map<const Value*, AxisSplit> tokens_;  // between the layers
  std::vector<SlicedOperand> sliced_;
  std::vector<Node*> losses_;
  std::unordered_set<int64_t> classes_;  // of divided losses, in all
  std::unordered_map<Value*, Value*> copies_, gathered_;
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

std::string LayersRemark(const std::vector<LayerSplit>& layers,
                         const std::string& file, int64_t ranks) {
  const auto whole = std::ranges::count(layers, LayerSplit::kWhole,
                                        [](const auto& l) { return l.kind; });
  const auto all = std::ssize(layers);
  Check(whole < all, "[", file, "] expected layers that ", ranks,
        " ranks of the axis tp can divide, got none in ", all,
        ": `inspect()` with `mesh` tells why");
  if (whole == 0) return "";
  return Concat(whole, " of ", all, " layers and embeddings are whole on each ",
                "rank of the axis tp: `inspect()` with `mesh` tells why");
}

}  // namespace onnx_fp8
