// SPDX-License-Identifier: Apache-2.0
#include "graph/parameter_names.h"

#include <algorithm>
#include <set>

#include "graph/export_record.h"
#include "graph/node_notes.h"
#include "graph/op_facts.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

bool AllDigits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// "/blocks.0/Constant_3_output_0", "Constant_12".
bool NamesConstantNode(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  if (!name.starts_with("Constant")) return false;
  name.remove_prefix(8);
  return name.empty() || name[0] == '_';
}

// The node that computes with the value, after views, and the operand slot.
struct Reader {
  const Node* node = nullptr;
  size_t slot = 0;
  bool transposed = false;  // by Transposes on the way
};

Reader FindReader(const Value* value) {
  Reader reader;
  while (!value->uses.empty()) {
    const Node* node = value->uses[0];
    reader.node = node;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (node->in(i) == value) reader.slot = i;
    }
    if (!IsViewOp(*node) || !node->out(0)) break;
    if (FactsOf(*node).form == OpForm::kTranspose) {
      reader.transposed = !reader.transposed;
    }
    value = node->out(0);
  }
  return reader;
}

// transformers' Conv1D keeps its weight as (in, out).
bool IsConv1D(const Node& node) {
  auto it = node.metadata.find("pkg.torch.onnx.class_hierarchy");
  return it != node.metadata.end() &&
         it->second.find("Conv1D") != std::string::npos;
}

ParameterName Recover(const Value& value) {
  ParameterName name{value.name};
  Reader reader = FindReader(&value);
  std::string module = reader.node ? ModulePath(*reader.node) : "";
  if (module.empty()) {
    name.remark = "the file has lost its PyTorch name; kept as " + value.name;
    return name;
  }
  bool product = FactsOf(*reader.node).kind == OpKind::kProduct;
  bool matrix = value.shape && value.rank() == 2;
  bool vector = value.shape && value.rank() == 1;
  bool bias = vector && (reader.node->Is("Add") || reader.slot == 2);
  name.fqn = module + (bias ? ".bias" : ".weight");
  if (product && matrix && reader.slot == 1) {
    bool used_transposed =
        reader.transposed != (reader.node->Int("transB", 0) != 0);
    name.transposed = !used_transposed && !IsConv1D(*reader.node);
  }
  name.remark = "recovered " + name.fqn + " from " + value.name +
                (name.transposed ? " (transposed)" : "");
  return name;
}

}  // namespace

bool IsMadeUpName(std::string_view name) {
  if (name.starts_with("onnx::") || NamesConstantNode(name)) return true;
  size_t underscore = name.rfind('_');
  if (underscore == std::string_view::npos) return AllDigits(name);
  std::string_view stem = name.substr(0, underscore);
  bool generic = stem == "val" || stem == "_v" || stem == "_val" ||
                 stem == "const" || stem == "constant" || stem == "_to_copy" ||
                 stem == "const_fold_opt_";
  return generic && AllDigits(name.substr(underscore + 1));
}

ParameterNames NameParameters(const Graph& graph) {
  ParameterNames names;
  std::set<std::string> taken;
  std::vector<const Value*> lost;
  const ExportRecord record = ReadExportRecord(graph);
  for (const Value* value : graph.Initializers()) {
    if (value->role != Role::kParameter && value->role != Role::kFrozen) {
      continue;
    }
    const TensorRecord* known = record.Find(value->name, value->data.shape());
    if (known && !known->key.empty() && taken.insert(known->key).second) {
      names[value->name] = {known->key, known->transposed};
    } else if (IsMadeUpName(value->name)) {
      lost.push_back(value);
    } else {
      names[value->name] = {value->name};
      taken.insert(value->name);
    }
  }
  for (const Value* value : lost) {
    ParameterName name = Recover(*value);
    if (!taken.insert(name.fqn).second) {
      name = {value->name, false,
              name.fqn + " is there already; kept as " + value->name};
    }
    names[value->name] = name;
  }
  return names;
}

}  // namespace onnx_fp8
