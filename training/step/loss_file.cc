// SPDX-License-Identifier: Apache-2.0
#include "training/step/loss_file.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/joined.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/written_file.h"
#include "graph/passes/compute_in_float.h"

namespace onnx_fp8 {
namespace {

std::vector<std::string> NamesOf(const std::vector<Value*>& values) {
  std::vector<std::string> names;
  for (const Value* value : values) names.push_back(value->name);
  return names;
}

std::string TypeText(const Value& value) {
  return Concat(Name(value.dtype),
                value.shape ? ToString(*value.shape) : " of unknown rank");
}

Value* LossOutput(const Graph& loss) {
  Check(loss.outputs.size() == 1, "[", loss.file,
        "] expected one output, the loss, got ", loss.outputs.size(),
        loss.outputs.empty() ? "" : ": " + Joined(NamesOf(loss.outputs)));
  Value* output = loss.outputs[0];
  const bool one =
      !output->shape ||
      std::ranges::all_of(*output->shape, [](int64_t n) { return n == 1; });
  Check(IsFloat(output->dtype) && one, "[", loss.file,
        "] expected a loss of one float, got \"", output->name, "\", ",
        TypeText(*output));
  return output;
}

// Errors: the value of the model can't be this input of the loss.
void CheckFits(const Graph& loss, const Value& input, const Value& value) {
  bool fits = input.dtype == value.dtype;
  if (input.shape && value.shape) {
    fits = fits && input.shape->size() == value.shape->size();
    for (size_t i = 0; fits && i < input.shape->size(); ++i) {
      const int64_t a = (*input.shape)[i], b = (*value.shape)[i];
      fits = a == b || a < 0 || b < 0;
    }
  }
  Check(fits, "[", loss.file, "] expected an input \"", input.name, "\" of ",
        TypeText(value), ", as the model has it, got ", TypeText(input));
}

class LossMerger {
 public:
  LossMerger(Graph& graph, const Graph& loss) : graph_(graph), loss_(loss) {}

  LossFile Run() {
    for (Value* input : loss_.inputs) values_[input] = Bind(*input);
    Check(!file_.reads.empty(), "[", loss_.file,
          "] expected an input with the name of an output of the model (",
          Joined(NamesOf(graph_.outputs)), "), got ",
          Joined(NamesOf(loss_.inputs)));
    for (Value* value : loss_.Initializers()) {
      if (values_.contains(value)) continue;
      values_[value] =
          graph_.AddInitializer(graph_.FreshName(Inside(*value)), value->data);
    }
    for (const Node& node : loss_.nodes()) Copy(node);
    Value* output = values_.at(LossOutput(loss_));
    Check(output->producer != nullptr, "[", loss_.file,
          "] expected a loss that is computed from the model's outputs, got \"",
          output->name, "\" itself");
    graph_.Rename(output, graph_.FreshName("loss"));
    graph_.outputs.push_back(output);
    file_.output = output->name;
    return file_;
  }

 private:
  static std::string Inside(const Value& value) { return "loss." + value.name; }

  Value* Bind(const Value& input) {
    for (Value* output : graph_.outputs) {
      if (output->name != input.name) continue;
      CheckFits(loss_, input, *output);
      file_.reads.push_back(output->name);
      return output;
    }
    Value* known = graph_.Find(input.name);
    if (known && std::ranges::count(graph_.inputs, known) > 0) {
      CheckFits(loss_, input, *known);
      return known;
    }
    Check(!known, "[", loss_.file, "] expected a name for the label \"",
          input.name, "\" that no other value of the model has");
    Value* label = graph_.AddInput(input.name, input.dtype, input.shape);
    label->axis_names = input.axis_names;
    file_.labels.push_back(input.name);
    return label;
  }

  void Copy(const Node& node) {
    Check(node.Subgraphs().empty(), "[", loss_.file,
          "] expected a loss without If, Loop and Scan, got ", node.Where());
    std::vector<Value*> inputs;
    for (const Value* in : node.inputs()) {
      inputs.push_back(in ? values_.at(in) : nullptr);
    }
    std::vector<std::string> names;
    for (const Value* out : node.outputs()) {
      names.push_back(out ? graph_.FreshName(Inside(*out)) : "");
    }
    Node* copy =
        graph_.AddNode(node.op, inputs, names, node.attributes, node.domain);
    copy->name = "loss." + node.name;
    copy->metadata = node.metadata;
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const Value* out = node.out(i);
      if (!out) continue;
      copy->out(i)->dtype = out->dtype;
      copy->out(i)->shape = out->shape;
      values_[out] = copy->out(i);
    }
  }

  Graph& graph_;
  const Graph& loss_;
  std::unordered_map<const Value*, Value*> values_;
  LossFile file_;
};

}  // namespace

LossFile AddLossFile(Graph& graph, const std::string& path,
                     const Budgets& budgets) {
  std::unique_ptr<Graph> loss = ReadModel(path, {.budgets = budgets});
  Check(WrittenAs(*loss) == Written::kNo, "[", path,
        "] expected a model from outputs and labels to the loss, got a file "
        "that `rewrite()` or another program wrote for training");
  LossOutput(*loss);
  ComputeInFloat(*loss);
  return LossMerger(graph, *loss).Run();
}

}  // namespace onnx_fp8
