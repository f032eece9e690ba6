// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/resident_layer.h"

#include <algorithm>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/op_facts.h"
#include "training/make_provider.h"
#include "training/step/pipelines.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

// The delayed scale before the first step. If it were 0, the first step would
// measure a scale.
constexpr float kKeptScale = 1.0f / 64;

bool Rounds(const Node& node, DType dtype) {
  return FactsOf(node).kind == OpKind::kRound && node.out(0)->narrow == dtype;
}

bool ReadsNarrow(const Node& node, const Value* x,
                 const KernelRegistry& kernels) {
  const KernelEntry* entry = kernels.Find(node.domain, node.op);
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (node.in(i) != x) continue;
    if (!entry || !std::ranges::count(entry->traits.narrow_in, i)) return false;
  }
  return true;
}

// Keeps x rounded to `dtype`, as the layer before would leave it.
void KeepNarrow(Graph& graph, Value* x, DType dtype,
                const KernelRegistry& kernels) {
  bool possible = std::ranges::all_of(x->uses, [&](const Node* reader) {
    return Rounds(*reader, dtype) || ReadsNarrow(*reader, x, kernels);
  });
  if (dtype == DType::kFloat || !possible) return;
  x->narrow = dtype;
  for (Node* reader : std::vector<Node*>(x->uses)) {
    if (!Rounds(*reader, dtype)) continue;
    graph.ReplaceUses(reader->out(0), x);
    graph.RemoveNode(reader);
  }
}

// Nodes run only if something reads them. An output would be copied out of the
// step's memory, so the outputs are the sizes of the results that nobody reads.
void ReplaceOutputs(Graph& graph) {
  graph.outputs.clear();
  std::vector<Value*> unread;
  for (Node& node : graph.nodes()) {
    auto is_read = [](const Value* y) { return y && !y->uses.empty(); };
    if (!std::ranges::any_of(node.outputs(), is_read)) {
      unread.push_back(node.out(0));
    }
  }
  Builder builder(graph, "size.");
  for (Value* value : unread) {
    graph.outputs.push_back(builder.Op("Size", {value}));
  }
}

// A constant is uploaded once, a feed for each run.
void MakeConstant(Graph& graph, Value* x, const Tensor& data) {
  std::erase(graph.inputs, x);
  x->is_input = false;
  x->data = ConvertTo(data, StoredAs(*x));
}

}  // namespace

ResidentLayer::ResidentLayer(const SessionOptions& options, const Tensor& input,
                             ExecutionProvider& provider)
    : provider_(provider) {
  PassRunner runner = MakePassRunner(options);
  auto evaluator = MakeEvaluator();
  TrainingModel model = LoadTrainingModel(options, runner);
  Check(model.graph->inputs.size() == 1, "expected a model of one input, got ",
        model.graph->inputs.size());
  std::string name = model.graph->inputs[0]->name;
  const StepSource source = MakeStepSource(options, model, *evaluator, runner);
  graph_ = BuildStepGraph(source, StepKind::kGradients, {{name, input.shape()}},
                          true)
               .graph;
  graph_->outputs.clear();  // they would keep their dtype
  FitToKernels(*graph_, provider.Kernels(), options, *evaluator, runner);
  Value* x = graph_->Find(name);
  KeepNarrow(*graph_, x, options.dtype, provider.Kernels());
  MakeConstant(*graph_, x, input);
  ReplaceOutputs(*graph_);
  executor_ = std::make_unique<Executor>(graph_, provider);
  for (const Value* value : executor_->plan().states) {
    Tensor start = value->data.Clone();
    if (value->role == Role::kScale && start.dtype() == DType::kFloat) {
      std::fill_n(start.data<float>(), start.size(), kKeptScale);
    }
    state_[value->name] = provider.Clone(start);
  }
}

void ResidentLayer::Run() {
  executor_->Run({}, state_);
  provider_.Synchronize();
}

}  // namespace onnx_fp8
