// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "graph/node_cost.h"
#include "graph/rewrite/rewrite_model.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/expand_missing.h"
#include "providers/run/executor.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"
#include "training/step/step_graph.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kMaxElements = 1 << 14;  // of one value
constexpr double kMaxFlops = 1e6;          // of a graph that is run
// Far below the program's own, so that a file that uses them up is quick.
constexpr Budgets kBudgets = {.constants = 64 << 20,
                              .nodes = 1 << 14,
                              .visits = 1 << 16,
                              .work = 1 << 28};
constexpr const char* kRecipes[] = {"off", "tensorwise", "delayed", "rowwise"};

std::map<std::string, Shape> Shapes(const Graph& graph) {
  std::map<std::string, Shape> shapes;
  for (const Value* input : graph.inputs) {
    Shape shape = input->shape.value_or(Shape{});
    for (int64_t& dim : shape) dim = dim < 0 ? 2 : dim;
    Check(IsSmall(shape, kMaxElements), "an input too large for a fuzzer");
    shapes[input->name] = shape;
  }
  return shapes;
}

bool IsCheap(const Graph& graph) {
  double flops = 0;
  for (const Node& node : graph.nodes()) flops += CostOf(node).flops;
  return flops <= kMaxFlops &&
         std::ranges::all_of(graph.Values(), [](const Value* value) {
           return value->concrete() && IsSmall(*value->shape, kMaxElements);
         });
}

// Every kernel once, on ones.
void Run(const std::shared_ptr<Graph>& graph, ExecutionProvider& provider) {
  TensorMap feeds, state;
  for (const Value* input : graph->inputs) {
    Tensor ones = Tensor::Allocate(DType::kUInt8, *input->shape);
    std::fill_n(ones.data<uint8_t>(), ones.size(), uint8_t{1});
    feeds[input->name] = ConvertTo(ones, input->dtype);
  }
  Touch(Executor(graph, provider).Run(feeds, state));
}

void PlanAndRun(const StepSource& source, StepKind kind,
                const std::map<std::string, Shape>& shapes) {
  static const auto provider = MakeCpuProvider();
  bool of_inputs = kind == StepKind::kGradients && !source.step;
  StepGraph step = BuildStepGraph(source, kind, shapes, of_inputs);
  ExpandMissing(*step.graph, provider->Kernels(), {}, source.evaluator);
  MakePlan(*step.graph, provider->Kernels());
  if (IsCheap(*step.graph)) Run(step.graph, *provider);
}

}  // namespace

// Takes a model file: reads it, checks it, finds its parameters, makes a graph
// of concrete shapes, plans it, and runs it if that is cheap; writes it in FP8;
// then plans and runs the graphs of its gradients, also by inputs, and of a
// whole step. The bytes decide the recipe. A training step is planned and run
// as it is.
void FuzzModel(std::string_view bytes) {
  static const auto evaluator = MakeCpuEvaluator();
  // External data of models that ask for them.
  static const std::string data =
      ScratchFile("data.bin", std::string(4096, '\1'));
  uint32_t choice = Crc32(bytes.data(), bytes.size());
  SessionOptions options;
  options.model = ScratchFile("model.onnx", bytes);
  options.budgets = kBudgets;
  PassRunner runner;
  TrainingModel model = LoadSessionModel(&options, runner);
  if (!model.step) {
    options.recipe = ParseRecipe(kRecipes[choice % 4]);
    options.loss.kind = "mse";
  }
  StepSource source = MakeStepSource(options, model, *evaluator, runner);
  auto shapes = Shapes(*model.graph);
  if (model.step) {
    PlanAndRun(source, StepKind::kTrain, shapes);
    PlanAndRun(source, StepKind::kEval, shapes);
    PlanAndRun(source, StepKind::kGradients, shapes);
    return;
  }
  source.loss.kind.clear();
  PlanAndRun(source, StepKind::kEval, shapes);
  RewriteModel(options.model, ScratchFolder() + "/rewritten.onnx",
               {.spec = {ParseRecipe("tensorwise"), {}, {}, {}}});
  source.loss = options.loss;
  PlanAndRun(source, StepKind::kGradients, shapes);
  PlanAndRun(source, StepKind::kTrain, shapes);
}

}  // namespace onnx_fp8
