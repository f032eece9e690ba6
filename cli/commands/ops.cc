// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/flags.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "graph/schemas.h"

namespace onnx_fp8 {
namespace {

const char* KindName(AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kInt:
      return "int";
    case AttributeKind::kFloat:
      return "float";
    case AttributeKind::kString:
      return "string";
    default:
      return "ints";
  }
}

nlohmann::ordered_json Describe(const OpDefinition& op) {
  auto attributes = nlohmann::ordered_json::array();
  for (const AttributeDefinition& attribute : op.attributes) {
    attributes.push_back(
        {{"name", attribute.name}, {"kind", KindName(attribute.kind)}});
  }
  return {{"name", op.name}, {"attributes", attributes}, {"body", op.body}};
}

}  // namespace

int Ops(const Arguments& arguments) {
  Flags flags({"ops",
               "The operators of the domain onnx_fp8, version 1, with their "
               "bodies in standard ONNX.",
               {{"Options", {"JSON", "Machine"}}},
               {"onnx-fp8 ops", "onnx-fp8 ops --json"}});
  if (!flags.Parse(arguments)) return 0;
  const bool json = flags.On("json");
  auto list = nlohmann::ordered_json::array();
  for (const std::string& name : OpNames()) {
    const OpDefinition& op = *FindOp(name);
    if (json) {
      list.push_back(Describe(op));
      continue;
    }
    Out() << name;
    for (const AttributeDefinition& attribute : op.attributes) {
      Out() << "  " << attribute.name << ": " << KindName(attribute.kind);
    }
    Out() << "\n" << op.body << "\n\n";
  }
  if (json) Out() << JsonLine(list);
  return 0;
}

}  // namespace onnx_fp8
