// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/expand.h"

#include <onnx/defs/schema.h>

#include <algorithm>

#include "base/check.h"
#include "graph/constants.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/upgrade.h"
#include "graph/op_facts.h"
#include "graph/passes/extra_bodies_internal.h"
#include "graph/passes/specialize.h"
#include "graph/schemas.h"
#include "graph/schemas_internal.h"

namespace onnx_fp8 {
namespace {

class NoEvaluator : public Evaluator {
 public:
  bool CanEvaluate(const Node&) const override { return false; }
  std::vector<Tensor> Evaluate(const Node& node,
                               const std::vector<Tensor>&) const override {
    Fail("[", node.Where(), "] can't be evaluated here");
  }
};

struct Body {
  onnx::FunctionProto function;
  int opset;  // opset for which its nodes were written
};

// The newest version up to `opset`.
int NewestUpTo(const std::vector<int>& versions, int opset) {
  int newest = 0;
  for (int version : versions) {
    if (version <= opset) newest = std::max(newest, version);
  }
  return newest;
}

const onnx::OpSchema* SchemaOf(const Node& node, int opset) {
  return onnx::OpSchemaRegistry::Schema(node.op, opset, node.domain);
}

// The body of an op of ours, or ONNX's: a fixed function of its schema, or one
// that the schema builds for the node's attributes and types.
Body FunctionOf(const Node& node, int opset) {
  if (node.domain == kDomain) {
    const OpDefinition* op = FindOp(node.op);
    Check(op != nullptr, "[", node.Where(), "] no such op in domain ", kDomain);
    return {BodyOf(*op), kBodyOpset};
  }
  const onnx::OpSchema* schema = SchemaOf(node, opset);
  Check(schema != nullptr, "[", node.Where(), "] no operator ", node.op,
        " in ONNX opset ", opset);
  if (schema->HasFunction()) {
    int version = NewestUpTo(schema->function_opset_versions(), opset);
    if (const onnx::FunctionProto* function = schema->GetFunction(opset)) {
      return {*function, version};
    }
  }
  Body body;
  bool built = false;
  if (schema->HasContextDependentFunction()) {
    body.opset =
        NewestUpTo(schema->context_dependent_function_opset_versions(), opset);
    std::vector<onnx::TypeProto> types(node.inputs().size());
    for (size_t i = 0; i < types.size(); ++i) {
      if (Value* in = node.in(i)) ToProto(in->dtype, in->shape, &types[i]);
    }
    onnx::NodeProto proto = ToProto(node);
    onnx::FunctionBodyBuildContextImpl context(proto, types);
    try {
      built =
          schema->BuildContextDependentFunction(context, body.function, opset);
    } catch (const std::exception& error) {
      Fail("[", node.Where(), "] has no function body: ", error.what());
    }
  }
  Check(built, "[", node.Where(), "] has no function body");
  return body;
}

// The values of the function's attributes, for references to them.
using Given = std::map<std::string, onnx::AttributeProto>;

Given GivenAttributes(const Node& node, const Body& body, int opset) {
  Given given;
  if (const onnx::OpSchema* schema = SchemaOf(node, opset)) {
    for (const auto& [name, attribute] : schema->attributes()) {
      if (attribute.default_value.has_type()) {
        given[name] = attribute.default_value;
      }
    }
  }
  for (const auto& attribute : body.function.attribute_proto()) {
    given[attribute.name()] = attribute;
  }
  onnx::NodeProto proto = ToProto(node);
  for (const auto& attribute : proto.attribute()) {
    given[attribute.name()] = attribute;
  }
  return given;
}

void ResolveReferences(onnx::NodeProto* node, const Given& given) {
  google::protobuf::RepeatedPtrField<onnx::AttributeProto> resolved;
  for (onnx::AttributeProto& attribute : *node->mutable_attribute()) {
    if (!attribute.ref_attr_name().empty()) {
      auto it = given.find(attribute.ref_attr_name());
      if (it == given.end()) continue;  // an omitted optional attribute
      onnx::AttributeProto copy = it->second;
      copy.set_name(attribute.name());
      *resolved.Add() = std::move(copy);
      continue;
    }
    if (attribute.has_g()) {
      for (auto& inner : *attribute.mutable_g()->mutable_node()) {
        ResolveReferences(&inner, given);
      }
    }
    *resolved.Add() = std::move(attribute);
  }
  *node->mutable_attribute() = std::move(resolved);
}

// Operand i of the node in the graph of its body: a constant, an input, or null
// if it is omitted.
Value* AddBodyInput(Graph& graph, const Node& node, size_t i) {
  const Value* outer = node.in(i);
  if (!outer) return nullptr;
  std::string name = "in." + std::to_string(i);
  return outer->is_constant()
             ? graph.AddInitializer(name, outer->data)
             : graph.AddInput(name, outer->dtype, outer->shape);
}

void FillExtraBody(Graph& graph, const Node& node, int opset) {
  graph.file = node.Where();
  graph.opset = opset;
  std::vector<Value*> in;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    in.push_back(AddBodyInput(graph, node, i));
    Check(!in.back() || in.back()->concrete(), "[", node.Where(),
          "] expected concrete input shapes to expand it");
  }
  Builder b(graph);
  graph.outputs = BuildExtraBody(b, node, in);
}

// The body as a graph of its own. Input i is called "in.i", and is an
// initializer if the node's input is a constant.
void FillBodyGraph(Graph& graph, const Node& node, int opset) {
  if (HasExtraBody(node)) return FillExtraBody(graph, node, opset);
  Body body = FunctionOf(node, opset);
  graph.file = node.Where();
  graph.opset = std::max(body.opset, kOldestOpset);
  ValueMap values;
  for (int i = 0; i < body.function.input_size(); ++i) {
    values[body.function.input(i)] =
        AddBodyInput(graph, node, static_cast<size_t>(i));
  }
  Given given = GivenAttributes(node, body, opset);
  for (onnx::NodeProto& inner : *body.function.mutable_node()) {
    ResolveReferences(&inner, given);
    AddNodeFromProto(graph, inner, values);
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (!node.out(i)) continue;
    auto it = values.find(body.function.output(static_cast<int>(i)));
    Check(it != values.end() && it->second, "[", node.Where(),
          "] body does not compute output ", i);
    graph.outputs.push_back(it->second);
  }
  LiftConstants(graph);
  Upgrade(graph);
}

// Copies the nodes of `body` before `node`; returns its outputs.
std::vector<Value*> CopyBody(Graph& graph, Node& node, const Graph& body) {
  std::string prefix = (node.out(0) ? node.out(0)->name : node.op) + "/";
  std::map<const Value*, Value*> values;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    Value* inner = body.Find("in." + std::to_string(i));
    if (inner && !inner->producer) values[inner] = node.in(i);
  }
  auto value_of = [&](Value* inner) -> Value* {
    if (!inner) return nullptr;
    Value*& value = values[inner];
    if (!value) {
      value = graph.AddInitializer(graph.FreshName(prefix + inner->name),
                                   inner->data);
    }
    return value;
  };
  for (const Node& inner : body.nodes()) {
    std::vector<Value*> inputs;
    for (Value* in : inner.inputs()) inputs.push_back(value_of(in));
    std::vector<std::string> names;
    for (Value* out : inner.outputs()) {
      names.push_back(out ? graph.FreshName(prefix + out->name) : "");
    }
    Node* copy = graph.AddNode(inner.op, inputs, names, inner.attributes,
                               inner.domain, &node);
    copy->metadata = node.metadata;
    copy->part = node.part;
    if (!node.name.empty()) copy->name = node.name + "/" + inner.op;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!copy->out(i)) continue;
      copy->out(i)->dtype = inner.out(i)->dtype;
      copy->out(i)->shape = inner.out(i)->shape;
      values[inner.out(i)] = copy->out(i);
    }
  }
  std::vector<Value*> outputs;
  for (Value* out : body.outputs) outputs.push_back(value_of(out));
  return outputs;
}

// Makes `output` the result of the node that computes `result`.
void TakeOver(Graph& graph, Value* output, Value* result) {
  output->dtype = result->dtype;
  output->shape = result->shape;
  graph.ReplaceUses(result, output);
  const auto& slots = result->producer->outputs();
  auto slot = std::ranges::find(slots, result) - slots.begin();
  graph.MoveOutput(output, result->producer, static_cast<size_t>(slot));
}

}  // namespace

bool HasBody(const Node& node) {
  if (node.domain == kDomain) return FindOp(node.op) != nullptr;
  if (HasExtraBody(node)) return true;
  const onnx::OpSchema* schema = SchemaOf(node, kNormalOpset);
  return schema &&
         (schema->HasFunction() || schema->HasContextDependentFunction());
}

std::unique_ptr<Graph> BodyGraphOf(const Node& node, int opset) {
  auto body = std::make_unique<Graph>();
  FillBodyGraph(*body, node, opset);
  return body;
}

void ExpandNode(Graph& graph, Node& node, const Evaluator* evaluator,
                Spending* spending) {
  Check(!IsCollective(node) || node.Int("ranks", 1) == 1, "[", node.Where(),
        "] expected a kernel for a collective of ", node.Int("ranks", 1),
        " ranks, got none: its body is that of one rank");
  std::unique_ptr<Graph> open = BodyGraphOf(node, graph.opset);
  std::map<std::string, Shape> shapes;
  for (const Value* input : open->inputs) {
    Check(input->concrete(), "[", node.Where(),
          "] expected concrete input shapes to expand it, got ",
          input->shape ? ToString(*input->shape) : "unknown rank");
    shapes[input->name] = *input->shape;
  }
  NoEvaluator none;
  std::unique_ptr<Graph> body = Specialize(
      *open, shapes, evaluator ? *evaluator : none, nullptr, {}, spending);
  std::vector<Value*> results = CopyBody(graph, node, *body);
  size_t next = 0;
  std::map<Value*, Value*> moved;
  for (Value* output : std::vector<Value*>(node.outputs())) {
    if (!output) continue;
    Value* result = results[next++];
    auto first = moved.find(result);
    if (first != moved.end()) result = first->second;
    bool own = first == moved.end() && result->producer &&
               std::ranges::find(node.inputs(), result) == node.inputs().end();
    if (!own) {
      result = graph
                   .AddNode("Identity", {result},
                            {graph.FreshName(output->name)}, {}, "", &node)
                   ->out(0);
      result->dtype = output->dtype;
      result->shape = output->shape;
    }
    TakeOver(graph, output, result);
    moved[results[next - 1]] = output;
  }
  graph.RemoveNode(&node);
}

}  // namespace onnx_fp8
