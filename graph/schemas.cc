// SPDX-License-Identifier: Apache-2.0
#include "graph/schemas.h"

#include <onnx/defs/parser.h>
#include <onnx/defs/schema.h>

#include <map>

#include "base/check.h"
#include "graph/schemas_internal.h"

namespace onnx_fp8 {
namespace {

using Table = std::map<std::string, OpDefinition, std::less<>>;

Table MakeTable() {
  Table table;
  for (auto* list : {AttentionOps, CastStatisticsOps, CollectiveOps, FusedOps,
                     FusedQuantizeOps, LossOps, MasterOps, MomentOps, RotaryOps,
                     RoundStochasticOps, RoundToOps, QuantizeOps,
                     QuantizeBlockOps, QuantizePaddedOps, ProductSumOps,
                     GradientOps, OptimizerOps, StraightThroughOps}) {
    for (OpDefinition& op : list()) {
      std::string name = op.name;
      Check(table.emplace(name, std::move(op)).second, "op ", name,
            " is defined twice");
    }
  }
  return table;
}

const Table& Ops() {
  static const Table table = MakeTable();
  return table;
}

onnx::AttributeProto::AttributeType TypeOf(AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kInt:
      return onnx::AttributeProto::INT;
    case AttributeKind::kFloat:
      return onnx::AttributeProto::FLOAT;
    case AttributeKind::kString:
      return onnx::AttributeProto::STRING;
    default:
      return onnx::AttributeProto::INTS;
  }
}

// A schema has only what the checker asks for: arity and attributes. Types are
// free; the body's own ops constrain them.
onnx::OpSchema MakeSchema(const OpDefinition& op) {
  onnx::FunctionProto body = BodyOf(op);
  onnx::OpSchema schema(op.name, "onnx_fp8", 0);
  schema.SetDomain(kDomain).SinceVersion(1);
  // Our nodes may carry notes (role, fqn, recipe) besides declared attributes.
  schema.AllowUncheckedAttributes();
  auto add = [&](bool input, int i, const std::string& name) {
    std::string type = (input ? "In" : "Out") + std::to_string(i);
    if (input) {
      schema.Input(i, name, "", type);
    } else {
      schema.Output(i, name, "", type);
    }
    schema.TypeConstraint(type, onnx::OpSchema::all_tensor_types_ir12(), "");
  };
  for (int i = 0; i < body.input_size(); ++i) add(true, i, body.input(i));
  for (int i = 0; i < body.output_size(); ++i) add(false, i, body.output(i));
  for (const AttributeDefinition& attribute : op.attributes) {
    schema.Attr(attribute.name, "", TypeOf(attribute.kind), true);
  }
  return schema;
}

}  // namespace

const OpDefinition* FindOp(std::string_view name) {
  auto it = Ops().find(name);
  return it == Ops().end() ? nullptr : &it->second;
}

std::vector<std::string> OpNames() {
  std::vector<std::string> names;
  for (const auto& [name, op] : Ops()) names.push_back(name);
  return names;
}

onnx::FunctionProto BodyOf(const OpDefinition& op) {
  // Some bodies call other ops of ours.
  bool calls =
      std::string_view(op.body).find("onnx_fp8.") != std::string_view::npos;
  std::string imports = calls ? Concat(", \"", kDomain, "\": 1") : "";
  std::string text =
      Concat("<domain: \"", kDomain, "\", opset_import: [\"\": ", kBodyOpset,
             imports, "]>\n", op.name, " ");
  for (size_t i = 0; i < op.attributes.size(); ++i) {
    text += (i > 0 ? ", " : "<") + std::string(op.attributes[i].name);
  }
  if (!op.attributes.empty()) text += "> ";
  text += op.body;
  onnx::FunctionProto function;
  onnx::OnnxParser parser(text.c_str());
  auto status = parser.Parse(function);
  Check(status.IsOK(), "[", op.name,
        "] body does not parse: ", status.ErrorMessage());
  return function;
}

void RegisterSchemas() {
  static const bool done = [] {
    auto& ranges = onnx::OpSchemaRegistry::DomainToVersionRange::Instance();
    if (!ranges.Map().contains(kDomain)) {
      ranges.AddDomainToVersion(kDomain, 1, 1);
    }
    for (const auto& [name, op] : Ops()) {
      onnx::OpSchema schema = MakeSchema(op);
      onnx::RegisterSchema(std::move(schema), 0, true, true);
    }
    return true;
  }();
  (void)done;
}

}  // namespace onnx_fp8
