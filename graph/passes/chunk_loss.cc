// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/chunk_loss.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/builder.h"
#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

// kRows is the number of rows in the largest block of scales. The number of
// rows in a chunk is a multiple of kRows, so a chunk has whole blocks only.
// Each chunk adds to the whole gradient of the weight. A chunk of fewer than
// kMinRows rows would take less time for its products than for this sum.
constexpr int64_t kRows = 128, kMinRows = 256;

bool Multiplies(const Node& node) {
  OpKind kind = FactsOf(node).kind;
  return kind == OpKind::kProduct || kind == OpKind::kScaledProduct;
}

bool IsQuantizer(const Node& node) {
  return FactsOf(node).kind == OpKind::kQuantize;
}

// The same elements in the same order.
bool IsReshape(const Node& node) {
  return node.Is("Reshape") || node.Is("Flatten");
}

bool IsRounding(const Node& node) {
  return FactsOf(node).kind == OpKind::kRound;
}

// Whether the node adds one number to each of the logits' columns. The last
// axis of the sum has to be the axis of the columns.
bool IsBias(const Node& node, int64_t columns) {
  const Value* sum = node.out(0);
  return node.Is("Add") && node.in(1)->concrete() && node.in(1)->rank() <= 1 &&
         sum->rank() > 0 && sum->dim(sum->rank() - 1) == columns;
}

// The node that rounds the value, if nothing else reads the value; else null.
Node* RoundingOf(const Value& value) {
  if (value.uses.size() != 1 || !IsRounding(*value.uses[0])) return nullptr;
  return value.uses[0];
}

// Bytes of the value's elements in memory where kernels round results.
size_t Kept(const Value& value) {
  const bool narrow =
      RoundingOf(value) || (value.producer && IsRounding(*value.producer));
  return narrow ? BytesOf(value) / 2 : BytesOf(value);
}

bool HasRows(const Value* value, int64_t rows) {
  return value && value->concrete() && value->rank() == 2 &&
         value->dim(0) == rows;
}

// The nodes between the layer's input and its gradients.
class Region {
 public:
  Region(Graph& graph, Node& loss, LogitsElsewhere elsewhere)
      : graph_(graph), loss_(loss), elsewhere_(elsewhere) {}

  // False if something does not fit; the graph is then unchanged.
  bool Find() {
    const Value* scores = loss_.in(0);
    if (!scores->concrete() || scores->rank() != 2) return false;
    rows_ = scores->dim(0);
    nodes_.insert(&loss_);
    Slice(loss_.in(1));
    return AddForward() && AddBackward() && OutputsFit();
  }

  int64_t rows() const { return rows_; }
  // Whether chunks of so many rows take less memory than the whole. They save
  // the logits of all other rows. The parts of the input's gradient lie beside
  // the whole, and a sum that is rounded behind the layer stays a float until
  // its last chunk.
  bool Saves(int64_t chunk) const {
    const size_t row = Kept(*loss_.in(0)) / static_cast<size_t>(rows_);
    size_t more = 0;
    for (const auto& [value, join] : joins_) {
      if (join == Join::kMax || logits_.contains(value)) continue;
      more +=
          join == Join::kRows ? Kept(*value) : BytesOf(*value) - Kept(*value);
    }
    return row * static_cast<size_t>(rows_ - chunk) > more;
  }
  void Cut(int64_t chunk);

 private:
  enum class Join { kRows, kSum, kMax };

  bool AddForward() {
    Value* value = loss_.in(0);
    int64_t columns = value->dim(1);
    while (value->producer &&
           (IsReshape(*value->producer) || IsRounding(*value->producer) ||
            IsBias(*value->producer, columns))) {
      AddLogits(value);
      value = value->producer->in(0);
    }
    Node* product = value->producer;
    if (!product || !Multiplies(*product) || !HasRows(value, rows_)) {
      return false;
    }
    AddLogits(value);
    const Value* bias = product->Is("Gemm") ? product->in(2) : nullptr;
    return product->Int("transA", 0) == 0 && (!bias || bias->rank() <= 1) &&
           AddRows(product->in(0));
  }

  void AddLogits(Value* value) {
    nodes_.insert(value->producer);
    logits_.insert(value);
  }

  bool AddBackward() {
    for (Node* reader : loss_.in(0)->uses) {
      if (reader == &loss_) continue;
      if (!reader->IsOurs("CrossEntropyGrad") || gradient_) return false;
      gradient_ = reader;
    }
    if (!gradient_) return true;
    nodes_.insert(gradient_);
    std::vector<Value*> found = {gradient_->out(0)};
    while (!found.empty()) {
      Value* value = found.back();
      found.pop_back();
      for (Node* reader : value->uses) {
        if (!nodes_.insert(reader).second) continue;
        if (!AddReader(*reader, value)) return false;
        if (!Multiplies(*reader) && !reader->Is("ReduceSum")) {
          found.push_back(reader->out(0));
        }
      }
    }
    return true;
  }

  bool AddReader(Node& node, const Value* value) {
    if (IsReshape(node) || IsRounding(node)) return true;
    if (!HasRows(value, rows_)) return false;
    if (IsQuantizer(node)) return true;
    if (node.Is("ReduceSum")) return AddColumnSum(node);
    return Multiplies(node) && AddGradient(node, value);
  }

  // The gradient of a bias.
  bool AddColumnSum(Node& node) {
    const Value* axes = node.in(1);
    bool columns = axes && axes->is_constant() && axes->data.size() == 1 &&
                   ToInts(axes->data)[0] == 0;
    joins_[node.out(0)] = Join::kSum;
    return columns && node.Int("keepdims", 1) == 0;
  }

  // dgrad: rows · weight; wgrad: a sum over all rows.
  bool AddGradient(Node& node, const Value* value) {
    bool first = node.in(0) == value;
    bool turned_a = node.Int("transA", 0) != 0;
    bool turned_b = node.Int("transB", 0) != 0;
    if (node.Is("Gemm") && node.in(2)) return false;
    if (first && !turned_a) {
      Node* round = RoundingOf(*node.out(0));
      if (round) nodes_.insert(round);
      joins_[round ? round->out(0) : node.out(0)] = Join::kRows;
      return true;
    }
    joins_[node.out(0)] = Join::kSum;
    if (!turned_a || turned_b) return false;
    return AddRows(node.in(first ? SecondOperand(node) : 0));
  }

  static size_t SecondOperand(const Node& node) {
    return FactsOf(node).kind == OpKind::kScaledProduct ? 2 : 1;
  }

  // An operand that is cut: from outside, or from a quantizer, which then
  // belongs to the region.
  bool AddRows(Value* value) {
    if (!HasRows(value, rows_)) return false;
    Node* maker = value->producer;
    if (maker && IsQuantizer(*maker)) {
      nodes_.insert(maker);
      value = maker->in(0);
    }
    Slice(value);
    return HasRows(value, rows_);
  }

  void Slice(Value* value) {
    if (std::ranges::find(sliced_, value) == sliced_.end()) {
      sliced_.push_back(value);
    }
  }

  // Whether everything that others read can be joined.
  bool OutputsFit() {
    for (const Node* node : nodes_) {
      for (size_t i = 0; i < node->outputs().size(); ++i) {
        Value* out = node->out(i);
        if (!out || (node == &loss_ && i == 0) || joins_.contains(out)) {
          continue;
        }
        bool inside = std::ranges::all_of(out->uses, [&](const Node* reader) {
          return nodes_.contains(reader);
        });
        if (inside && !IsReturned(graph_, out)) continue;
        bool joined = elsewhere_ == LogitsElsewhere::kJoined && out->concrete();
        if (joined && logits_.contains(out)) {
          joins_[out] = Join::kRows;
          continue;
        }
        if (!IsQuantizer(*node) || i != 2) return false;
        joins_[out] = Join::kMax;  // an amax
      }
    }
    return true;
  }

  std::vector<Node*> InOrder() const {
    std::vector<Node*> order;
    for (Node& node : graph_.nodes()) {
      if (nodes_.contains(&node)) order.push_back(&node);
    }
    return order;
  }

  // The node before which the chunks run: the loss, or the first node behind
  // all that they read. Null: the end of the graph. At a later place, the
  // gathers of the backward's weights would run before the chunks.
  Node* Place() const {
    Node* place = nullptr;
    bool behind = false;  // the loss
    for (Node& node : graph_.nodes()) {
      behind |= &node == &loss_;
      if (!behind) continue;
      if (!place) place = &node;
      if (IsRead(node)) place = nullptr;
    }
    return place;
  }

  // Whether the chunks read a result of a node that is not cut.
  bool IsRead(const Node& node) const {
    return !nodes_.contains(&node) &&
           std::ranges::any_of(node.outputs(), [&](const Value* value) {
             return value &&
                    std::ranges::any_of(value->uses, [&](const Node* reader) {
                      return nodes_.contains(reader);
                    });
           });
  }

  // The number of labels that count, as a float.
  Value* Counted(Builder& b, Value* labels) const {
    Value* ignored =
        b.Cast(b.Int(loss_.Int("ignore_index", -100)), labels->dtype);
    Value* counts = b.Op("Not", {b.Op("Equal", {labels, ignored})});
    return b.ReduceSum(b.Cast(counts, DType::kFloat), {0}, false);
  }

  Graph& graph_;
  Node& loss_;
  const LogitsElsewhere elsewhere_;
  Node* gradient_ = nullptr;
  int64_t rows_ = 0;
  std::unordered_set<const Node*> nodes_;
  std::unordered_set<Value*> logits_;  // the forward nodes' results
  std::vector<Value*> sliced_;         // values from outside that are cut
  std::unordered_map<Value*, Join> joins_;
};

// The joined values keep their names: a step knows its loss and its gradients
// by them.
void Region::Cut(int64_t chunk) {
  const std::vector<Node*> order = InOrder();
  Builder b(graph_, loss_.out(0)->name + ".chunk.", Place());
  Value* all = Counted(b, loss_.in(1));
  Value* loss = nullptr;
  std::unordered_map<Value*, std::vector<Value*>> parts;
  std::vector<Value*> joined;  // in the order of their nodes
  for (int64_t row = 0; row < rows_; row += chunk) {
    std::unordered_map<const Value*, Value*> made;
    Value* axis = b.Ints({0});
    Value* begin = b.Ints({row});
    Value* end = b.Ints({std::min(row + chunk, rows_)});
    for (Value* value : sliced_) {
      made[value] = b.Op("Slice", {value, begin, end, axis});
    }
    Value* counted = Counted(b, made.at(loss_.in(1)));
    Value* share = b.Div(counted, all);
    for (Node* node : order) {
      if (IsReshape(*node)) {
        Value* out = node->out(0);
        made[out] = made.at(node->in(0));
        if (!joins_.contains(out)) continue;
        parts[out].push_back(made[out]);
        if (row == 0) joined.push_back(out);
        continue;
      }
      std::vector<Value*> in;
      for (Value* value : node->inputs()) {
        auto own = made.find(value);
        in.push_back(own == made.end() ? value : own->second);
      }
      if (node == gradient_) in[0] = b.Mul(in[0], share);
      b.set_metadata(node->metadata);
      auto out = b.Ops(node->op, in, node->outputs().size(), node->attributes,
                       node->domain);
      b.set_metadata({});
      for (size_t i = 0; i < out.size(); ++i) {
        Value* old = node->out(i);
        if (!old) continue;
        made[old] = out[i];
        if (!joins_.contains(old)) continue;
        if (joins_.at(old) == Join::kRows) {
          parts[old].push_back(out[i]);
        } else if (parts[old].empty()) {
          parts[old] = {out[i]};
        } else {
          bool sum = joins_.at(old) == Join::kSum;
          parts[old] = {b.Op(sum ? "Add" : "Max", {parts[old][0], out[i]})};
        }
        if (row == 0) joined.push_back(old);
      }
    }
    // The mean over no labels is NaN.
    Value* zero = b.Scalar(0, share);
    Value* some = b.Op("Greater", {counted, zero});
    Value* mean = b.Op("Where", {some, made.at(loss_.out(0)), zero});
    Value* term = b.Mul(mean, share);
    loss = loss ? b.Add(loss, term) : term;
  }
  graph_.MoveOutput(loss_.out(0), loss->producer, 0);
  for (Value* old : joined) {
    const std::vector<Value*>& values = parts.at(old);
    Value* whole = values[0];
    if (joins_.at(old) == Join::kRows) {
      whole = b.Op("Concat", values, {{"axis", int64_t{0}}});
      bool reshaped = old->rank() != 2 || old->dim(0) != rows_;
      if (reshaped) whole = b.Op("Reshape", {whole, b.Ints(*old->shape)});
    }
    graph_.MoveOutput(old, whole->producer, 0);
  }
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    graph_.RemoveNode(*node);
  }
}

}  // namespace

void ChunkLoss(Graph& graph, int64_t bytes, LogitsElsewhere elsewhere) {
  std::vector<Node*> losses;
  for (Node& node : graph.nodes()) {
    const Value* scores = node.in(0);
    if (bytes > 0 && node.IsOurs("CrossEntropy") && scores->concrete() &&
        BytesOf(*scores) > static_cast<size_t>(bytes)) {
      losses.push_back(&node);
    }
  }
  bool cut = false;
  for (Node* node : losses) {
    auto size = static_cast<int64_t>(BytesOf(*node->in(0)));
    Region region(graph, *node, elsewhere);
    if (!region.Find()) continue;
    int64_t rows = region.rows() * bytes / size / kRows * kRows;
    rows = std::max(rows, kMinRows);
    if (rows >= region.rows() || !region.Saves(rows)) continue;
    region.Cut(rows);
    cut = true;
  }
  if (cut) graph.Sort();
}

}  // namespace onnx_fp8
