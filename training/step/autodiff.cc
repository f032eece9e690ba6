// SPDX-License-Identifier: Apache-2.0
#include "training/step/autodiff.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/needed_when.h"
#include "graph/passes/expand.h"
#include "training/step/gradient_registry.h"

namespace onnx_fp8 {
namespace {

constexpr char kPrefix[] = "grad.";

using ValueSet = std::unordered_set<const Value*>;

// All values that a node reads, including the captures of its subgraphs.
std::vector<Value*> Reads(const Graph& graph, const Node& node) {
  std::vector<Value*> reads;
  for (Value* value : node.inputs()) {
    if (value) reads.push_back(value);
  }
  for (const Graph* body : node.Subgraphs()) {
    for (const Value* inner : body->Values()) {
      if (inner->producer || inner->is_input || inner->data.defined()) continue;
      if (Value* outer = graph.Find(inner->name)) reads.push_back(outer);
    }
  }
  return reads;
}

// The nodes between the wanted values and the loss.
struct Path {
  ValueSet depends;  // float values that depend smoothly on a wanted one
  ValueSet reaches;  // values that the loss depends on
  std::vector<Node*> nodes;  // in execution order

  bool Has(const Value* value) const {
    return value && reaches.contains(value) && depends.contains(value);
  }
};

// Whether the node's rule handles all gradients that its outputs get.
bool IsHandled(const Path& path, const Node& node) {
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (path.Has(node.out(i)) &&
        !Gradients().Handles(node.domain, node.op, i)) {
      return false;
    }
  }
  return true;
}

Path FindPath(Graph& graph, const Value* loss,
              const std::vector<Value*>& wanted) {
  const GradientRegistry& rules = Gradients();
  Path path;
  path.depends.insert(wanted.begin(), wanted.end());
  for (Node& node : graph.nodes()) {
    if (rules.Find(node.domain, node.op) == NoGradient) continue;
    auto reads = Reads(graph, node);
    if (std::ranges::none_of(
            reads, [&](Value* v) { return path.depends.contains(v); })) {
      continue;
    }
    for (const Value* out : node.outputs()) {
      if (out && (IsFloat(out->dtype) || out->is_sequence)) {
        path.depends.insert(out);
      }
    }
  }
  path.reaches = {loss};
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
    auto on_path = [&](const Value* out) { return path.Has(out); };
    if (std::ranges::none_of(it->outputs(), on_path)) continue;
    bool any = false;
    for (Value* value : Reads(graph, *it)) {
      any |= path.depends.contains(value);
      path.reaches.insert(value);
    }
    // A wanted value may be the result of a node that is not on the path.
    if (any) path.nodes.push_back(&*it);
  }
  std::ranges::reverse(path.nodes);
  return path;
}

// The path after every node without a rule for its gradients is replaced by its
// body, if it has one.
Path ExpandPath(Graph& graph, const Value* loss,
                const std::vector<Value*>& wanted, const Evaluator& evaluator,
                Spending& spending) {
  for (;;) {
    Path path = FindPath(graph, loss, wanted);
    std::vector<Node*> open;
    std::map<std::string, std::pair<int, std::string>> missing;
    for (Node* node : path.nodes) {
      bool has_rule = Gradients().Find(node->domain, node->op) != nullptr;
      if (has_rule && IsHandled(path, *node)) continue;
      if (HasBody(*node)) {
        open.push_back(node);
        continue;
      }
      if (has_rule) continue;  // the gradient may turn out to be zero
      std::string op =
          node->domain.empty() ? node->op : node->domain + "." + node->op;
      auto& [count, where] = missing[op];
      if (count++ == 0) where = node->Where();
    }
    if (!missing.empty()) {
      std::string text;
      for (const auto& [op, found] : missing) {
        text += Concat(text.empty() ? "" : "; ", op, " (", found.first,
                       found.first == 1 ? " node: " : " nodes, first: ",
                       found.second, ")");
      }
      Fail("[", graph.file,
           "] expected ops with a gradient between the trained "
           "values and the loss \"",
           loss->name, "\", got ", text);
    }
    if (open.empty()) return path;
    for (Node* node : open) ExpandNode(graph, *node, &evaluator, &spending);
  }
}

class Backward {
 public:
  Backward(Graph& graph, Value* loss, Path path, const Evaluator& evaluator)
      : graph_(graph),
        evaluator_(evaluator),
        path_(std::move(path)),
        needed_(NeededWhen(graph, {loss})) {}

  // Returns the seed.
  Value* Run(Value* loss, Value* seed) {
    if (seed) {
      Builder b(graph_, kPrefix);
      gradient_[loss] = b.Reshape(b.Cast(seed, loss->dtype), *loss->shape);
    } else {
      // Not shared with other constants of 1: a value that depends on the seed
      // depends on a loss gradient (graph/fp8/gemm_roles.h).
      Tensor one = ConvertTo(Tensor::Scalar(1.0f), loss->dtype);
      seed = graph_.AddInitializer(graph_.FreshName(kPrefix + loss->name),
                                   one.Reshaped(*loss->shape));
      gradient_[loss] = seed;
    }
    for (auto it = path_.nodes.rbegin(); it != path_.nodes.rend(); ++it) {
      Visit(**it);
    }
    return seed;
  }

  Value* Gradient(Value* value) const {
    auto it = gradient_.find(value);
    return it == gradient_.end() ? nullptr : it->second;
  }

 private:
  void Visit(Node& node) {
    std::vector<Value*> dy;
    bool any = false;
    for (const Value* out : node.outputs()) {
      auto it = gradient_.find(out);
      dy.push_back(it == gradient_.end() ? nullptr : it->second);
      any |= dy.back() != nullptr;
      size_t i = dy.size() - 1;
      Check(!dy.back() || Gradients().Handles(node.domain, node.op, i), "[",
            node.Where(), "] expected a loss that does not depend on output ",
            i, ", \"", out ? out->name : "",
            "\", whose gradient is not known for ", node.op,
            "; freeze the parameters before the node, or compute the "
            "value by other operators");
    }
    if (!any) return;  // all ways to the loss have a gradient of zero
    for (const auto& values : {node.inputs(), node.outputs()}) {
      for (const Value* value : values) {
        Check(!value || value->concrete(), "[", node.Where(),
              "] expected concrete shapes for the backward graph, got ",
              value && value->shape ? ToString(*value->shape) : "unknown rank",
              " for \"", value ? value->name : "", "\"");
      }
    }
    std::vector<bool> needs;
    for (const Value* in : node.inputs()) {
      needs.push_back(in && IsFloat(in->dtype) && path_.depends.contains(in));
    }
    Builder b(graph_, kPrefix);
    auto metadata = node.metadata;
    if (!node.name.empty()) metadata[kForwardName] = node.name;
    b.set_metadata(std::move(metadata));
    GradientContext context(b, node, std::move(dy), needs, evaluator_);
    Gradients().Find(node.domain, node.op)(context);
    for (size_t i = 0; i < needs.size(); ++i) {
      if (needs[i] && context.Dx(i))
        Accumulate(b, node, node.in(i), context.Dx(i));
    }
  }

  // Adds to the gradient of `value`, summed down to its shape.
  void Accumulate(Builder& b, const Node& node, Value* value, Value* dx) {
    const Shape& shape = *value->shape;
    Check(dx->concrete() &&
              BroadcastShapes(*dx->shape, shape, node.Where()) == *dx->shape,
          "[", node.Where(), "] expected a gradient of shape ", ToString(shape),
          ", got ", dx->shape ? ToString(*dx->shape) : "unknown rank");
    dx = b.Cast(b.SumTo(dx, shape), value->dtype);
    // Gradients that leave a branch that is not taken are zero, whatever its
    // nodes compute from values that are not meant for them.
    Conditions left = ConditionsOf(needed_, &node);
    const Conditions& inside = ConditionsOf(needed_, value->producer);
    std::erase_if(left, [&](const Condition& condition) {
      return std::ranges::find(inside, condition) != inside.end();
    });
    if (!left.empty()) dx = Choose(b, left, dx, b.Scalar(0, dx));
    Value*& sum = gradient_[value];
    // Summed as they come, so at most two of them are alive at a time.
    sum = sum ? b.Add(sum, dx) : dx;
  }

  Graph& graph_;
  const Evaluator& evaluator_;
  Path path_;
  NeededMap needed_;
  std::unordered_map<const Value*, Value*> gradient_;
};

}  // namespace

BackwardResult BuildBackward(Graph& graph, Value* loss,
                             const std::vector<Value*>& wanted,
                             const Evaluator& evaluator, Spending* spending,
                             Value* seed) {
  Check(loss != nullptr && IsFloat(loss->dtype) && loss->concrete() &&
            NumElements(*loss->shape) == 1,
        "[", graph.file, "] expected one float as loss, got ",
        loss ? Concat(Name(loss->dtype), " \"", loss->name, "\" of shape ",
                      loss->shape ? ToString(*loss->shape) : "unknown")
             : "none");
  for (const Value* value : wanted) {
    Check(IsFloat(value->dtype), "[", graph.file,
          "] expected a float value to differentiate by, got ",
          Name(value->dtype), " \"", value->name, "\"");
  }
  Spending own;
  Path path =
      ExpandPath(graph, loss, wanted, evaluator, spending ? *spending : own);
  Backward backward(graph, loss, std::move(path), evaluator);
  BackwardResult result;
  result.seed = backward.Run(loss, seed);
  std::unordered_set<Value*> named;
  for (Value* value : wanted) {
    Value* gradient = backward.Gradient(value);
    if (!gradient) continue;
    result.gradient[value] = gradient;
    if (gradient->producer && named.insert(gradient).second) {
      graph.Rename(gradient, graph.FreshName(kPrefix + value->name));
    }
  }
  return result;
}

}  // namespace onnx_fp8
