// SPDX-License-Identifier: Apache-2.0
#include <onnx/inliner/inliner.h>

#include <map>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "graph/onnx/inline_functions_internal.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/upgrade.h"

namespace onnx_fp8 {
namespace {

using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using FunctionId = std::tuple<std::string, std::string, std::string>;

void NoteOpset(NodeList* nodes, int opset) {
  for (onnx::NodeProto& node : *nodes) {
    auto* entry = node.add_metadata_props();
    entry->set_key(kOpsetNote);
    entry->set_value(std::to_string(opset));
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) {
        NoteOpset(attribute.mutable_g()->mutable_node(), opset);
      }
    }
  }
}

template <typename Proto>
FunctionId IdOf(const Proto& proto, const std::string& name) {
  return {proto.domain(), name, proto.overload()};
}

// The inliner forgets the default values of a function's attributes, so each
// call gets the defaults of the attributes that it omits.
class Defaults {
 public:
  explicit Defaults(const onnx::ModelProto& model) {
    for (const auto& function : model.functions()) {
      const auto& attributes = function.attribute_proto();
      defaults_[IdOf(function, function.name())].assign(attributes.begin(),
                                                        attributes.end());
    }
  }

  void Give(NodeList* nodes) const {
    for (onnx::NodeProto& node : *nodes) {
      std::set<std::string> given;
      for (auto& attribute : *node.mutable_attribute()) {
        given.insert(attribute.name());
        if (attribute.has_g()) Give(attribute.mutable_g()->mutable_node());
      }
      auto callee = defaults_.find(IdOf(node, node.op_type()));
      if (callee == defaults_.end()) continue;
      for (const onnx::AttributeProto& attribute : callee->second) {
        if (!given.contains(attribute.name())) {
          *node.add_attribute() = attribute;
        }
      }
    }
  }

 private:
  std::map<FunctionId, std::vector<onnx::AttributeProto>> defaults_;
};

void Inline(onnx::ModelProto* model, const std::string& path,
            const std::set<FunctionName>* chosen) {
  int opset = OnnxOpset(*model, path);
  Defaults defaults(*model);
  defaults.Give(model->mutable_graph()->mutable_node());
  for (auto& function : *model->mutable_functions()) {
    defaults.Give(function.mutable_node());
  }
  // The inliner refuses functions whose imports differ from the model's.
  // Imports of the functions that stay are restored afterwards.
  using Imports = google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>;
  std::map<FunctionId, Imports> kept;
  for (auto& function : *model->mutable_functions()) {
    bool stays =
        chosen && !chosen->contains({function.domain(), function.name()});
    int own = OnnxOpset(function, path, opset);
    if (!stays && own != opset) NoteOpset(function.mutable_node(), own);
    kept[IdOf(function, function.name())].Swap(function.mutable_opset_import());
  }
  std::vector<FunctionName> names;
  if (chosen) names.assign(chosen->begin(), chosen->end());
  auto set = onnx::inliner::FunctionIdSet::Create(std::move(names), !chosen);
  try {
    onnx::inliner::InlineSelectedLocalFunctions(*model, *set);
  } catch (const std::exception& error) {
    Fail("[", path, "] local functions can't be inlined: ", error.what());
  }
  for (auto& function : *model->mutable_functions()) {
    kept[IdOf(function, function.name())].Swap(function.mutable_opset_import());
  }
}

}  // namespace

void InlineFunctions(onnx::ModelProto* model, const std::string& path) {
  if (model->functions_size() > 0) Inline(model, path, nullptr);
}

void InlineFunctions(onnx::ModelProto* model, const std::string& path,
                     const std::set<FunctionName>& chosen) {
  if (!chosen.empty()) Inline(model, path, &chosen);
}

}  // namespace onnx_fp8
