// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <queue>
#include <set>
#include <unordered_map>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

template <typename T>
const T* Get(const Node& node, std::string_view key) {
  auto it = node.attributes.find(key);
  if (it == node.attributes.end()) return nullptr;
  const T* value = std::get_if<T>(&it->second);
  Check(value != nullptr, "[", node.Where(), "] attribute ", key,
        " is of another kind than its operator expects");
  return value;
}

// Names that the node's subgraphs read from the graphs around them.
void AddCapturedNames(const Node& node, std::set<std::string>* names) {
  for (const Graph* body : node.Subgraphs()) {
    const Graph& inner = *body;
    for (const Value* value : inner.Values()) {
      bool captured =
          !value->producer && !value->is_input && !value->is_initializer();
      if (captured) names->insert(value->name);
    }
    std::set<std::string> deeper;
    for (const Node& child : inner.nodes()) AddCapturedNames(child, &deeper);
    for (const std::string& name : deeper) {
      if (!inner.Find(name)) names->insert(name);
    }
  }
}

}  // namespace

const char* Name(Role role) {
  switch (role) {
    case Role::kNone:
      return "const";
    case Role::kParameter:
      return "param";
    case Role::kFrozen:
      return "frozen";
    case Role::kMoment:
      return "moment";
    case Role::kAverage:
      return "average";
    case Role::kCorrection:
      return "correction";
    case Role::kScale:
      return "scale";
    case Role::kLossScale:
      return "loss scale";
    case Role::kGradientNorm:
      return "gradient norm";
    case Role::kStatistic:
      return "statistic";
    case Role::kSum:
      return "sum";
    case Role::kCounter:
      return "counter";
    case Role::kBound:
      return "state";
    case Role::kWeightCopy:
      return "copy";
  }
  return "?";
}

size_t BytesOf(const Value& value) {
  return static_cast<size_t>(NumElements(*value.shape)) *
         ByteSize(StoredAs(value));
}

bool Node::Has(std::string_view key) const {
  return attributes.find(key) != attributes.end();
}

int64_t Node::Int(std::string_view key, int64_t otherwise) const {
  const int64_t* value = Get<int64_t>(*this, key);
  return value ? *value : otherwise;
}

float Node::Float(std::string_view key, float otherwise) const {
  const float* value = Get<float>(*this, key);
  return value ? *value : otherwise;
}

std::string Node::String(std::string_view key,
                         std::string_view otherwise) const {
  const std::string* value = Get<std::string>(*this, key);
  return value ? *value : std::string(otherwise);
}

std::vector<int64_t> Node::Ints(std::string_view key,
                                std::vector<int64_t> otherwise) const {
  const auto* value = Get<std::vector<int64_t>>(*this, key);
  return value ? *value : otherwise;
}

std::vector<float> Node::Floats(std::string_view key) const {
  const auto* value = Get<std::vector<float>>(*this, key);
  return value ? *value : std::vector<float>{};
}

const Tensor* Node::TensorAttribute(std::string_view key) const {
  return Get<Tensor>(*this, key);
}

std::shared_ptr<Graph> Node::Subgraph(std::string_view key) const {
  const auto* value = Get<std::shared_ptr<Graph>>(*this, key);
  return value ? *value : nullptr;
}

std::vector<Graph*> Node::Subgraphs() const {
  std::vector<Graph*> bodies;
  for (const auto& [key, attribute] : attributes) {
    auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (body && *body) bodies.push_back(body->get());
  }
  return bodies;
}

std::ostream& operator<<(std::ostream& out, const NodePlace& place) {
  const Node& node = place.node_;
  if (!node.domain.empty()) out << node.domain << ".";
  out << node.op;
  if (!node.name.empty()) return out << " " << node.name;
  for (const Value* value : node.outputs()) {
    if (value) return out << " -> " << value->name;
  }
  return out;
}

NodePlace::operator std::string() const { return Concat(*this); }

Value* Graph::NewValue(const std::string& name) {
  Check(!name.empty(), "[", file, "] expected a value with a name");
  values_.emplace_back();
  auto it = std::prev(values_.end());
  it->name = name;
  bool added = by_name_.emplace(name, it).second;
  if (!added) {
    values_.pop_back();
    Fail("[", file, "] expected unique value names, got \"", name, "\" twice");
  }
  return &*it;
}

Value* Graph::AddInput(const std::string& name, DType dtype,
                       std::optional<Shape> shape) {
  Value* value = NewValue(name);
  value->dtype = dtype;
  value->shape = std::move(shape);
  value->is_input = true;
  inputs.push_back(value);
  return value;
}

Value* Graph::AddInitializer(const std::string& name, Tensor data) {
  Value* value = NewValue(name);
  value->dtype = data.dtype();
  value->shape = data.shape();
  value->data = std::move(data);
  return value;
}

Value* Graph::AddCaptured(const std::string& name) { return NewValue(name); }

Value* Graph::Find(std::string_view name) const {
  auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &*it->second;
}

std::string Graph::FreshName(const std::string& hint) const {
  if (!by_name_.contains(hint)) return hint;
  int& suffix = next_suffix_[hint];
  std::string name;
  do {
    name = hint + "_" + std::to_string(++suffix);
  } while (by_name_.contains(name));
  return name;
}

void Graph::Rename(Value* value, const std::string& name) {
  if (value->name == name) return;
  Check(!by_name_.contains(name), "[", file, "] value name \"", name,
        "\" is taken");
  auto entry = by_name_.extract(value->name);
  entry.key() = name;
  by_name_.insert(std::move(entry));
  value->name = name;
}

void Graph::RemoveValue(Value* value) {
  assert(value->producer == nullptr && value->uses.empty());
  if (value->is_input) std::erase(inputs, value);
  auto it = by_name_.find(value->name);
  auto where = it->second;
  by_name_.erase(it);
  values_.erase(where);
}

std::vector<Value*> Graph::Values() const {
  std::vector<Value*> all;
  all.reserve(values_.size());
  for (const Value& value : values_) all.push_back(const_cast<Value*>(&value));
  return all;
}

std::vector<Value*> Graph::Initializers() const {
  std::vector<Value*> all;
  for (const Value& value : values_) {
    if (value.is_initializer()) all.push_back(const_cast<Value*>(&value));
  }
  return all;
}

Node* Graph::AddNode(const std::string& op, const std::vector<Value*>& inputs,
                     const std::vector<std::string>& output_names,
                     Attributes attributes, const std::string& domain,
                     Node* before) {
  auto it = nodes_.emplace(before ? before->self_ : nodes_.end());
  Node* node = &*it;
  node->self_ = it;
  node->op = op;
  node->domain = domain;
  node->attributes = std::move(attributes);
  node->inputs_ = inputs;
  for (Value* value : inputs) {
    if (value) value->uses.push_back(node);
  }
  for (const std::string& output : output_names) {
    Value* value = output.empty() ? nullptr : NewValue(output);
    if (value) value->producer = node;
    node->outputs_.push_back(value);
  }
  return node;
}

Value* Graph::AddOutput(Node* node, size_t index, const std::string& name) {
  if (node->outputs_.size() <= index) node->outputs_.resize(index + 1);
  assert(node->outputs_[index] == nullptr);
  Value* value = NewValue(name);
  value->producer = node;
  node->outputs_[index] = value;
  return value;
}

void Graph::DropUse(Value* value, Node* node) {
  // Searches from the back: the last use is usually the one removed, and a
  // constant may have as many uses as the graph has nodes.
  auto& uses = value->uses;
  auto it = std::find(uses.rbegin(), uses.rend(), node);
  assert(it != uses.rend());
  uses.erase(std::prev(it.base()));
}

void Graph::SetInput(Node* node, size_t index, Value* value) {
  if (node->inputs_.size() <= index) node->inputs_.resize(index + 1);
  if (Value* old = node->inputs_[index]) DropUse(old, node);
  node->inputs_[index] = value;
  if (value) value->uses.push_back(node);
  node->source = -1;
}

void Graph::RemoveInput(Node* node, size_t index) {
  if (Value* old = node->inputs_[index]) DropUse(old, node);
  node->inputs_.erase(node->inputs_.begin() +
                      static_cast<std::ptrdiff_t>(index));
  node->source = -1;
}

void Graph::ReplaceUses(Value* from, Value* to) {
  if (from == to) return;
  for (Node* node : from->uses) {
    std::ranges::replace(node->inputs_, from, to);
    node->source = -1;
  }
  to->uses.insert(to->uses.end(), from->uses.begin(), from->uses.end());
  from->uses.clear();
  std::ranges::replace(outputs, from, to);
  for (StateBinding& binding : state) {
    if (binding.next == from) binding.next = to;
  }
}

Node* Graph::NodeBehind(const Node& node) {
  const auto next = std::next(node.self_);
  return next == nodes_.end() ? nullptr : &*next;
}

void Graph::RemoveNode(Node* node) {
  for (Value* value : node->inputs_) {
    if (value) DropUse(value, node);
  }
  for (Value* value : node->outputs_) {
    if (!value) continue;
    value->producer = nullptr;
    RemoveValue(value);
  }
  nodes_.erase(node->self_);
}

void Graph::MoveOutput(Value* value, Node* to, size_t index) {
  Node* from = value->producer;
  Value* other = to->outputs_[index];
  auto slot = std::ranges::find(from->outputs_, value);
  from->source = -1;
  std::swap(*slot, to->outputs_[index]);
  value->producer = to;
  if (other) other->producer = from;
}

void Graph::MoveToNewOutput(Value* value, Node* to, size_t index) {
  Value* made = AddOutput(to, index, FreshName(value->name));
  made->dtype = value->dtype;
  made->shape = value->shape;
  MoveOutput(value, to, index);
}

void Graph::Sort() {
  // A node waits for the producers of its operands and of the values that its
  // subgraphs capture.
  std::vector<Node*> all;
  std::unordered_map<const Node*, size_t> position;
  position.reserve(nodes_.size());
  for (Node& node : nodes_) {
    position.emplace(&node, all.size());
    all.push_back(&node);
  }
  std::vector<std::vector<size_t>> readers(all.size());
  std::vector<size_t> waiting(all.size());
  auto depends = [&](size_t node, const Value* value) {
    if (!value || !value->producer) return;
    readers[position.at(value->producer)].push_back(node);
    ++waiting[node];
  };
  for (size_t i = 0; i < all.size(); ++i) {
    for (const Value* value : all[i]->inputs_) depends(i, value);
    for (const Value* value : CapturedBy(*all[i])) depends(i, value);
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < all.size(); ++i) {
    if (waiting[i] == 0) ready.push(i);
  }
  std::list<Node> sorted;
  while (!ready.empty()) {
    size_t next = ready.top();
    ready.pop();
    sorted.splice(sorted.end(), nodes_, all[next]->self_);
    for (size_t reader : readers[next]) {
      if (--waiting[reader] == 0) ready.push(reader);
    }
  }
  if (!nodes_.empty()) {
    std::string where = nodes_.front().Where();
    nodes_.splice(nodes_.begin(), sorted);
    Fail("[", where, "] lies on a cycle of the graph");
  }
  nodes_.swap(sorted);
}

std::vector<Value*> Graph::CapturedBy(const Node& node) const {
  std::set<std::string> names;
  AddCapturedNames(node, &names);
  std::vector<Value*> captured;
  for (const std::string& captured_name : names) {
    if (Value* value = Find(captured_name)) captured.push_back(value);
  }
  return captured;
}

std::vector<Value*> Graph::CapturedBySubgraphs() const {
  std::vector<Value*> captured;
  for (const Node& node : nodes_) {
    for (Value* value : CapturedBy(node)) captured.push_back(value);
  }
  return captured;
}

Value* FirstResult(const Node& node) {
  for (Value* out : node.outputs()) {
    if (out) return out;
  }
  return nullptr;
}

bool IsReturned(const Graph& graph, const Value* value) {
  return std::ranges::find(graph.outputs, value) != graph.outputs.end() ||
         std::ranges::any_of(graph.state, [&](const StateBinding& binding) {
           return binding.next == value;
         });
}

std::unordered_set<const Value*> ReturnedValues(const Graph& graph) {
  std::unordered_set<const Value*> values = NewState(graph);
  values.insert(graph.outputs.begin(), graph.outputs.end());
  return values;
}

std::unordered_set<const Value*> NewState(const Graph& graph) {
  std::unordered_set<const Value*> values;
  for (const StateBinding& binding : graph.state) values.insert(binding.next);
  return values;
}

}  // namespace onnx_fp8
