// SPDX-License-Identifier: Apache-2.0
#include <onnx/defs/schema.h>

#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "graph/graph.h"
#include "graph/onnx/check_inference.h"
#include "graph/onnx/check_nodes_internal.h"
#include "graph/onnx/upgrade.h"
#include "graph/schemas.h"

namespace onnx_fp8 {
namespace {

struct Bounds {
  int64_t lowest, highest;
};

// ONNX's shape inference divides by some of these attributes and multiplies
// with others; that must not overflow for sizes up to kMaxElements.
Bounds BoundsOf(const std::string& attribute) {
  constexpr int64_t kFactor = 1 << 20;
  static const std::map<std::string, Bounds, std::less<>> kBounds = {
      {"blocksize", {1, 1024}},
      {"dilations", {1, kFactor}},
      {"group", {1, kFactor}},
      {"hidden_size", {1, INT32_MAX}},
      {"kernel_shape", {1, INT32_MAX}},
      {"kv_num_heads", {1, kFactor}},
      {"num_groups", {1, kFactor}},
      {"num_outputs", {1, INT32_MAX}},
      {"output_padding", {0, INT32_MAX}},
      {"q_num_heads", {1, kFactor}},
      {"strides", {1, kFactor}},
  };
  // Any number is fine here: it is data, or an index that is clamped, or an
  // axis that is checked with its rank.
  static const std::set<std::string, std::less<>> kFree = {
      "axis",  "end",    "ends",      "ignore_index", "pool_int64s",
      "start", "starts", "value_int", "value_ints"};
  if (kFree.contains(attribute)) return {INT64_MIN, INT64_MAX};
  auto known = kBounds.find(attribute);
  if (known != kBounds.end()) return known->second;
  return {-kMaxElements, kMaxElements};
}

void CheckBounds(const onnx::AttributeProto& attribute,
                 const std::string& who) {
  auto [lowest, highest] = BoundsOf(attribute.name());
  std::vector<int64_t> values(attribute.ints().begin(), attribute.ints().end());
  if (attribute.type() == onnx::AttributeProto::INT) {
    values.push_back(attribute.i());
  }
  for (int64_t value : values) {
    Check(value >= lowest && value <= highest, who, "expected attribute ",
          attribute.name(), " in ", lowest, "…", highest, ", got ", value);
  }
}

void CheckNode(const onnx::NodeProto& node, int opset,
               const std::string& path) {
  if (node.op_type().empty()) return;  // the conversion gives a better message
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
    if (attribute.ref_attr_name().empty()) CheckBounds(attribute, who);
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
