// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/infer_shapes.h"

#include <onnx/defs/schema.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/joined.h"
#include "graph/einsum_equation.h"
#include "graph/onnx/check_inference.h"
#include "graph/onnx/check_sizes.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/schemas.h"

namespace onnx_fp8 {
namespace {

bool HasSubgraph(const Node& node) {
  for (const auto& [key, attribute] : node.attributes) {
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return true;
  }
  return false;
}

// ONNX has no inference for some ops. Returns the op whose inference fits this
// node.
std::string StandIn(const Node& node) {
  if (node.Is("GreaterOrEqual")) return "Greater";
  if (node.Is("LessOrEqual")) return "Less";
  if (node.Is("GroupNormalization")) return "Relu";
  if (node.Is("MeanVarianceNormalization")) return "Relu";
  return node.op;
}

using Formal = onnx::OpSchema::FormalParameter;

// "float" for "tensor(float)"; empty if the type is no tensor.
std::string_view ElementType(onnx::DataType type) {
  std::string_view text = *type;
  if (!text.starts_with("tensor(")) return {};
  return text.substr(7, text.size() - 8);
}

bool Allows(const Formal& formal, std::string_view name) {
  return std::ranges::any_of(formal.GetTypes(), [&](onnx::DataType type) {
    return ElementType(type) == name;
  });
}

std::string TypeList(const Formal& formal) {
  std::set<std::string_view> names;
  for (onnx::DataType type : formal.GetTypes()) {
    names.insert(ElementType(type));
  }
  std::string list;
  for (std::string_view name : names) {
    if (name.empty()) continue;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

// ONNX's own inference takes types on trust, and so do the kernels.
void CheckTypes(const Node& node, const onnx::OpSchema& schema) {
  std::map<std::string, const Value*> first;  // the first value of each type
                                              // variable
  const auto& formals = schema.inputs();
  for (size_t i = 0; i < node.inputs().size() && !formals.empty(); ++i) {
    const Value* value = node.in(i);
    if (!value || value->dtype == DType::kUndefined || value->is_sequence) {
      continue;
    }
    const auto& formal = formals[std::min(i, formals.size() - 1)];
    // Gradients are checked in double, which ONNX forbids for a few of its ops.
    bool wide = value->dtype == DType::kDouble && Allows(formal, "float");
    if (!wide && !Allows(formal, Name(value->dtype))) {
      Fail("[", node.Where(), "] expected input ", i, " (\"", value->name,
           "\") to be of ", TypeList(formal), ", got ", Name(value->dtype));
    }
    if (!formal.GetIsHomogeneous()) continue;
    auto [it, added] = first.try_emplace(formal.GetTypeStr(), value);
    if (it->second->dtype != value->dtype) {
      Fail("[", node.Where(), "] expected inputs of one type, got \"",
           it->second->name, "\" of ", Name(it->second->dtype), " and \"",
           value->name, "\" of ", Name(value->dtype));
    }
  }
}

// The output's type as inferred. Errors: an axis below 0.
void CheckOutput(const Node& node, const onnx::TypeProto& type) {
  for (const auto& dim : type.tensor_type().shape().dim()) {
    Check(!dim.has_dim_value() || dim.dim_value() >= 0, "[", node.Where(),
          "] expected an output with axis sizes >= 0, got ", dim.dim_value());
  }
}

// The axis of a letter in a term for `rank` axes. REQUIRES: the term has it.
int64_t AxisOf(const std::string& term, char letter, int64_t rank) {
  size_t at = term.find(letter);
  auto axis = static_cast<int64_t>(at);
  if (at > term.find('.')) axis += rank - std::ssize(term);
  return axis;
}

// The size of a letter of an Einsum: axes of one element broadcast. -1: not
// known.
int64_t SizeOfLetter(const Node& node, const std::vector<std::string>& terms,
                     char letter) {
  int64_t known = 1;
  for (size_t i = 0; i < terms.size(); ++i) {
    const Value* x = node.in(i);
    if (terms[i].find(letter) == std::string::npos) continue;
    int64_t size = -1;
    if (x && x->shape) size = x->dim(AxisOf(terms[i], letter, x->rank()));
    if (size != 1 && known <= 1) known = size;
  }
  return known;
}

// ONNX takes the size of a letter from the first operand that has it.
void BroadcastLetters(Node& node) {
  std::string text = node.String("equation", "");
  std::erase(text, ' ');
  size_t arrow = text.find("->");
  Value* y = node.out(0);
  if (arrow == std::string::npos || !y || !y->shape) return;
  auto terms = EquationTerms(text, node.inputs().size(), node.Where());
  std::string result = text.substr(arrow + 2);
  for (char letter : result) {
    if (letter == '.') continue;
    int64_t axis = AxisOf(result, letter, y->rank());
    (*y->shape)[static_cast<size_t>(axis)] = SizeOfLetter(node, terms, letter);
  }
}

}  // namespace

void InferNode(Node& node, int opset) {
  if (node.domain == kDomain) {
    const OpDefinition* op = FindOp(node.op);
    Check(op != nullptr, "[", node.Where(), "] no such op in domain ", kDomain);
    op->infer(node);
    return;
  }
  if (HasSubgraph(node)) return;
  // Other domains that ONNX defines have no kernels here.
  const onnx::OpSchema* schema =
      node.domain.empty()
          ? onnx::OpSchemaRegistry::Schema(StandIn(node), opset, "")
          : nullptr;
  if (!schema) {
    Fail("[", node.Where(), "] no operator ", node.op,
         node.domain.empty() ? "" : " of domain ", node.domain,
         " in ONNX opset ", opset,
         node.domain.empty() ? ""
                             : "; beside ONNX's own operators only local "
                               "functions of the model are known");
  }
  CheckTypes(node, *schema);
  CheckInference(node);
  if (!schema->has_type_and_shape_inference_function()) return;

  onnx::NodeProto proto = ToProto(node);
  std::unordered_map<std::string, onnx::TypeProto> types;
  std::unordered_map<std::string, onnx::TensorProto> data;
  std::unordered_map<std::string, onnx::TypeProto*> type_of;
  std::unordered_map<std::string, const onnx::TensorProto*> data_of;
  for (const Value* value : node.inputs()) {
    if (!value || value->is_sequence) continue;
    auto [it, added] = types.try_emplace(value->name);
    if (!added) continue;
    type_of[value->name] = &it->second;
    // Some of ONNX's functions read a type even if there is none, but all of
    // them accept a type that is empty.
    if (value->dtype == DType::kUndefined) continue;
    // onnxruntime takes an axis of one element for a scalar, and so does ONNX
    // itself in the body of AffineGrid.
    bool as_scalar = node.Is("Range") && value->shape == Shape{1};
    ToProto(value->dtype, as_scalar ? Shape{} : value->shape, &it->second);
    if (const Tensor* tensor = KnownData(value)) {
      onnx::TensorProto& known = data[value->name];
      ToProto(as_scalar ? tensor->Reshaped({}) : *tensor, value->name, &known);
      data_of[value->name] = &known;
    }
  }
  onnx::shape_inference::InferenceContextImpl context(
      proto, type_of, data_of, {},
      onnx::ShapeInferenceOptions{false, 1, false});
  try {
    schema->GetTypeAndShapeInferenceFunction()(context);
  } catch (const std::exception& error) {
    std::vector<std::string> inputs;
    for (const Value* value : node.inputs()) {
      if (!value) continue;
      inputs.push_back(Concat(value->name, " ", Name(value->dtype),
                              value->shape ? ToString(*value->shape) : ""));
    }
    Fail("[", node.Where(), "] ", error.what(), "; inputs: ", Joined(inputs));
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (Value* value = node.out(i)) {
      CheckOutput(node, *context.getOutputType(i));
      MergeType(*context.getOutputType(i), value);
    }
  }
  if (node.Is("Einsum")) BroadcastLetters(node);
  CheckSizes(node, node.outputs());
}

}  // namespace onnx_fp8
