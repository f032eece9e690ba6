// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "graph/onnx/infer_shapes.h"
#include "graph/passes/specializer.h"

namespace onnx_fp8 {
namespace {

Value* AsTensor(const Node& node, const Entry& entry) {
  Check(!entry.is_sequence, "[", node.Where(),
        "] expected tensors from the body, got a sequence");
  return entry.value;
}

// Whether a Loop's body passes its condition on, so that the trip count alone
// decides.
bool NeverEndsEarly(const Graph& body) {
  const Value* going = body.outputs[0];
  for (size_t hops = 0; going && hops <= body.nodes().size(); ++hops) {
    if (body.inputs.size() > 1 && going == body.inputs[1]) return true;
    const Node* from = going->producer;
    going = from && from->Is("Identity") ? from->in(0) : nullptr;
  }
  return false;
}

}  // namespace

// Errors: the iterations cost more than is left. Checked before any is walked.
void Specializer::RequireVisits(const Node& node, const Graph& body,
                                int64_t trips) {
  auto each = static_cast<int64_t>(body.nodes().size()) + 1;
  int64_t all = 0;
  if (__builtin_mul_overflow(trips, each, &all)) all = INT64_MAX;
  Spending ahead = spending_;
  ahead.Take(&Budgets::visits, all, node);
}

bool Specializer::VisitControlFlow(Scope& scope, const Node& node) {
  if (node.Is("If")) {
    VisitIf(scope, node);
  } else if (node.Is("Loop")) {
    VisitLoop(scope, node);
  } else if (node.Is("Scan")) {
    VisitScan(scope, node);
  } else {
    return false;
  }
  return true;
}

// The inputs from `first` on, which a loop passes from one iteration to the
// next, and finally to as many outputs.
std::vector<Entry> Specializer::Carried(Scope& scope, const Node& node,
                                        size_t first, size_t count) {
  Check(node.outputs().size() >= count, "[", node.Where(),
        "] expected at "
        "least ",
        count, " outputs, one for each carried value, got ",
        node.outputs().size());
  std::vector<Entry> entries;
  for (size_t i = first; i < first + count; ++i) {
    Check(node.in(i) != nullptr, "[", node.Where(), "] expected input ", i,
          ", got none");
    entries.push_back(Lookup(scope, node.in(i)));
  }
  return entries;
}

std::vector<Entry> Specializer::Inline(Scope& scope, const Graph& body,
                                       const std::vector<Entry>& inputs) {
  Check(body.inputs.size() == inputs.size(), "[", body.name, "] expected ",
        inputs.size(), " inputs of the body, got ", body.inputs.size());
  Scope inner{&body, &scope, {}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    inner.entries[body.inputs[i]] = inputs[i];
  }
  Walk(inner);
  std::vector<Entry> outputs;
  for (const Value* value : body.outputs) {
    outputs.push_back(Lookup(inner, value));
  }
  return outputs;
}

void Specializer::VisitIf(Scope& scope, const Node& node) {
  Value* condition = TensorAt(scope, node, 0);
  auto branch = [&](const char* key) {
    auto body = node.Subgraph(key);
    Check(body != nullptr, "[", node.Where(), "] expected two branches");
    std::vector<Entry> outputs = Inline(scope, *body, {});
    Check(outputs.size() == node.outputs().size(), "[", node.Where(),
          "] expected ", node.outputs().size(), " outputs of ", key, ", got ",
          outputs.size());
    return outputs;
  };
  std::vector<Entry> outputs;
  if (!SourcesOf(node, condition).data) {
    bool taken = KnownInt(node, condition, "the condition") != 0;
    outputs = branch(taken ? "then_branch" : "else_branch");
  } else {
    outputs = branch("then_branch");
    std::vector<Entry> otherwise = branch("else_branch");
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].value = Select(node, condition, outputs[i], otherwise[i]);
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (node.out(i)) scope.entries[node.out(i)] = outputs[i];
  }
}

// The condition depends on data: both branches run, one result is used.
Value* Specializer::Select(const Node& node, Value* condition, const Entry& yes,
                           const Entry& no) {
  Check(!yes.is_sequence && !no.is_sequence &&
            *yes.value->shape == *no.value->shape,
        "[", node.Where(),
        "] the condition depends on data; expected both "
        "branches to give tensors of one shape");
  // The condition may be a vector of one element; it must not raise the rank of
  // the result.
  Value* scalar =
      Emit(node, "Reshape", {condition, Constant(Tensor::Ints({}), "shape")});
  return Emit(node, "Where", {scalar, yes.value, no.value});
}

// Operands: trip count, condition, carried values. Operands of the body:
// iteration, condition, carried values. Its results: condition, carried values,
// and one slice for each scanned output.
void Specializer::VisitLoop(Scope& scope, const Node& node) {
  auto body = node.Subgraph("body");
  Check(body != nullptr && node.inputs().size() >= 2, "[", node.Where(),
        "] expected a body, a trip count and a condition");
  int64_t trips = INT64_MAX;
  if (node.in(0)) {
    trips = KnownInt(node, TensorAt(scope, node, 0), "the trip count");
  }
  bool going =
      !node.in(1) || KnownInt(node, TensorAt(scope, node, 1), "the condition");
  size_t carried_count = node.inputs().size() - 2;
  std::vector<Entry> carried = Carried(scope, node, 2, carried_count);
  Check(node.outputs().size() + 1 == body->outputs.size(), "[", node.Where(),
        "] expected ", node.outputs().size() + 1, " outputs of the body, got ",
        body->outputs.size());
  if (going && NeverEndsEarly(*body)) RequireVisits(node, *body, trips);
  std::vector<std::vector<Value*>> scanned(node.outputs().size() -
                                           carried_count);
  for (int64_t i = 0; i < trips && going; ++i) {
    spending_.Take(&Budgets::visits, 1, node);
    std::vector<Entry> inputs = {
        {Constant(Tensor::Scalar<int64_t>(i), "iteration"), {}, false},
        {Constant(Tensor::Scalar<bool>(true), "condition"), {}, false}};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    std::vector<Entry> outputs = Inline(scope, *body, inputs);
    going = KnownInt(node, AsTensor(node, outputs[0]), "the condition") != 0;
    for (size_t j = 0; j < carried_count; ++j) carried[j] = outputs[j + 1];
    for (size_t j = 0; j < scanned.size(); ++j) {
      scanned[j].push_back(AsTensor(node, outputs[1 + carried_count + j]));
    }
  }
  for (size_t j = 0; j < node.outputs().size(); ++j) {
    if (!node.out(j)) continue;
    scope.entries[node.out(j)] =
        j < carried_count
            ? carried[j]
            : Entry{Stack(node, scanned[j - carried_count], 0), {}, false};
  }
}

// Operands: carried states, then the inputs that are read slice by slice. The
// body returns the states and one slice for each scanned output.
void Specializer::VisitScan(Scope& scope, const Node& node) {
  auto body = node.Subgraph("body");
  size_t scans = static_cast<size_t>(node.Int("num_scan_inputs", 0));
  Check(body && scans >= 1 && scans <= node.inputs().size(), "[", node.Where(),
        "] expected a body and num_scan_inputs in 1…", node.inputs().size());
  size_t states = node.inputs().size() - scans;
  auto listed = [&](const char* key, size_t i) -> int64_t {
    std::vector<int64_t> all = node.Ints(key);
    return i < all.size() ? all[i] : 0;
  };
  std::vector<Entry> carried = Carried(scope, node, 0, states);
  int64_t length = -1;
  std::vector<Value*> xs;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < scans; ++i) {
    Value* x = TensorAt(scope, node, states + i);
    axes.push_back(
        NormalizeAxis(listed("scan_input_axes", i), x->rank(), node.Where()));
    Check(length < 0 || length == x->dim(axes[i]), "[", node.Where(),
          "] expected scan inputs of one length, got ", length, " and ",
          x->dim(axes[i]));
    length = x->dim(axes[i]);
    xs.push_back(x);
  }
  Check(node.outputs().size() == body->outputs.size() &&
            states <= body->outputs.size(),
        "[", node.Where(), "] expected ", node.outputs().size(),
        " outputs of the body, got ", body->outputs.size());
  RequireVisits(node, *body, length);
  std::vector<std::vector<Value*>> scanned(node.outputs().size() - states);
  for (int64_t t = 0; t < length; ++t) {
    spending_.Take(&Budgets::visits, 1, node);
    std::vector<Entry> inputs = carried;
    for (size_t i = 0; i < scans; ++i) {
      bool back = listed("scan_input_directions", i) != 0;
      Value* index = Constant(
          Tensor::Scalar<int64_t>(back ? length - 1 - t : t), "iteration");
      Value* slice = Emit(node, "Gather", {xs[i], index}, {{"axis", axes[i]}});
      inputs.push_back({slice, {}, false});
    }
    std::vector<Entry> outputs = Inline(scope, *body, inputs);
    for (size_t j = 0; j < states; ++j) carried[j] = outputs[j];
    for (size_t j = 0; j < scanned.size(); ++j) {
      scanned[j].push_back(AsTensor(node, outputs[states + j]));
    }
  }
  for (size_t j = 0; j < node.outputs().size(); ++j) {
    if (!node.out(j)) continue;
    if (j < states) {
      scope.entries[node.out(j)] = carried[j];
      continue;
    }
    std::vector<Value*>& parts = scanned[j - states];
    if (listed("scan_output_directions", j - states) != 0) {
      std::ranges::reverse(parts);
    }
    Bind(scope, node.out(j),
         Stack(node, parts, listed("scan_output_axes", j - states)));
  }
}

Value* Specializer::Stack(const Node& node, const std::vector<Value*>& parts,
                          int64_t axis) {
  Check(!parts.empty(), "[", node.Where(),
        "] expected at least one iteration to know the output's shape, got 0");
  Value* axes = Constant(Tensor::Ints({axis}), "axes");
  std::vector<Value*> rows;
  for (Value* part : parts) {
    rows.push_back(Emit(node, "Unsqueeze", {part, axes}));
  }
  return Emit(node, "Concat", rows, {{"axis", axis}});
}

Value* Specializer::Emit(const Node& like, const std::string& op,
                         const std::vector<Value*>& in, Attributes attributes) {
  std::string base = like.out(0) ? like.out(0)->name : like.op;
  Node* node = out_.AddNode(op, in, {out_.FreshName(base + "." + op)},
                            std::move(attributes));
  node->name = like.name;
  node->metadata = like.metadata;
  InferNode(*node, out_.opset);
  RequireShapes(*node);
  spending_.Take(&Budgets::nodes, 1, *node);
  return node->out(0);
}

}  // namespace onnx_fp8
