// SPDX-License-Identifier: Apache-2.0
#include <onnx/defs/schema.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "graph/check_nodes_internal.h"
#include "graph/graph.h"
#include "graph/schemas.h"
#include "onnx_fp8/check.h"

namespace onnx_fp8 {
namespace {

// More nodes than this would make a graph that nobody can plan.
constexpr int64_t kMaxInlinedNodes = 1'000'000;

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
    CheckPositive(attribute, who);
  }
}

// Sizes of local functions once everything they call is inlined.
class FunctionSizes {
 public:
  FunctionSizes(const onnx::ModelProto& model, const std::string& path)
      : path_(path) {
    for (const auto& function : model.functions()) {
      functions_[{function.domain(), function.name()}] = &function;
    }
  }

  template <typename Nodes>
  int64_t Sum(const Nodes& nodes) {
    int64_t size = 0;
    for (const onnx::NodeProto& node : nodes) {
      size += Of(node);
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) size += Sum(attribute.g().node());
      }
      Check(size <= kMaxInlinedNodes, "[", path_,
            "] expected local functions that come to at most ",
            kMaxInlinedNodes, " nodes once they are inlined, got more");
    }
    return size;
  }

 private:
  using Id = std::pair<std::string, std::string>;
  static constexpr int64_t kOpen = -1;  // being summed further up

  int64_t Of(const onnx::NodeProto& node) {
    Id id{node.domain(), node.op_type()};
    auto function = functions_.find(id);
    if (function == functions_.end()) return 1;
    auto [known, first] = sizes_.try_emplace(id, kOpen);
    if (!first) {
      Check(known->second != kOpen, "[", path_, "] local function ", id.first,
            ".", id.second, " calls itself: it can't be inlined");
      return known->second;
    }
    // The recursion is as deep as the calls are; a thread's stack is not.
    Check(++depth_ <= 1000, "[", path_,
          "] expected local functions that call each other at most 1000 deep, "
          "got more");
    int64_t size = Sum(function->second->node());
    --depth_;
    return sizes_[id] = size;
  }

  std::string path_;
  std::map<Id, const onnx::FunctionProto*> functions_;
  std::map<Id, int64_t> sizes_;
  int depth_ = 0;
};

}  // namespace

void CheckNodes(const onnx::GraphProto& graph, int opset,
                const std::string& path) {
  for (const auto& node : graph.node()) {
    CheckNode(node, opset, path);
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) CheckNodes(attribute.g(), opset, path);
    }
  }
}

void CheckFunctions(const onnx::ModelProto& model, const std::string& path) {
  if (model.functions_size() == 0) return;
  FunctionSizes sizes(model, path);
  sizes.Sum(model.graph().node());
  // The inliner also looks at functions that nobody calls.
  for (const auto& function : model.functions()) sizes.Sum(function.node());
}

}  // namespace onnx_fp8
