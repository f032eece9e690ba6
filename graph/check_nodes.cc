// SPDX-License-Identifier: Apache-2.0
#include <onnx/defs/schema.h>

#include <set>
#include <vector>

#include "graph/check_nodes_internal.h"
#include "graph/graph.h"
#include "graph/schemas.h"
#include "graph/upgrade.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

// ONNX's shape inference divides by these.
void CheckPositive(const onnx::AttributeProto& attribute,
                   const std::string& who) {
  static const std::set<std::string, std::less<>> kPositive = {
      "blocksize",    "dilations",    "group",      "hidden_size",
      "kernel_shape", "kv_num_heads", "num_groups", "num_outputs",
      "q_num_heads",  "strides"};
  if (!kPositive.contains(attribute.name())) return;
  std::vector<int64_t> values(attribute.ints().begin(), attribute.ints().end());
  if (attribute.type() == onnx::AttributeProto::INT) {
    values.push_back(attribute.i());
  }
  for (int64_t value : values) {
    Check(value >= 1 && value <= INT32_MAX, who, "expected attribute ",
          attribute.name(), " in 1…", INT32_MAX, ", got ", value);
  }
}

void CheckNode(const onnx::NodeProto& node, int opset,
               const std::string& path) {
  if (node.op_type().empty()) return;  // the conversion says it better
  std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  if (domain == kDomain) RegisterSchemas();
  const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(
      node.op_type(), domain == kDomain ? 1 : opset, domain);
  if (!schema && !domain.empty()) return;
  std::string name = node.name();
  if (name.empty() && node.output_size() > 0) name = "-> " + node.output(0);
  const std::string who =
      Concat("[", path, ": ", node.op_type(), " ", name, "] ");
  Check(schema, who, "no operator ", node.op_type(), " in ONNX opset ", opset);
  try {
    schema->Verify(node);
  } catch (const std::exception& error) {
    Fail(who, error.what());
  }
  if (!domain.empty()) return;
  for (const auto& attribute : node.attribute()) {
    if (attribute.ref_attr_name().empty()) CheckPositive(attribute, who);
  }
}

}  // namespace

void CheckNodes(const NodeList& nodes, int opset, const std::string& path) {
  for (const auto& node : nodes) {
    int own = opset;
    for (const auto& entry : node.metadata_props()) {
      if (entry.key() == kOpsetNote) own = ParseOpsetNote(entry.value(), path);
    }
    CheckNode(node, own, path);
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) CheckNodes(attribute.g().node(), own, path);
    }
  }
}

}  // namespace onnx_fp8
