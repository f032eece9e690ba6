// SPDX-License-Identifier: Apache-2.0
#include "training/step/first_values.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "graph/passes/specialize.h"
#include "providers/run/executor.h"
#include "training/make_provider.h"
#include "training/step/pipelines.h"

namespace onnx_fp8 {
namespace {

// Other numbers than those of the steps.
constexpr uint64_t kFirstDrawKey = 0x66697273745F7631;

// The outputs of a graph without inputs.
TensorMap Compute(const Graph& graph, const SessionOptions& options,
                  uint64_t draw) {
  std::unique_ptr<ExecutionProvider> provider =
      MakeProvider(ProviderNames().front());
  std::unique_ptr<Evaluator> evaluator = MakeEvaluator();
  Spending spending(options.budgets);
  std::shared_ptr<Graph> known =
      Specialize(graph, {}, *evaluator, nullptr, {}, &spending);
  PassRunner runner;
  runner.Begin("initialization");
  SessionOptions own;
  own.budgets = options.budgets;
  FitToKernels(*known, provider->Kernels(), own, *evaluator, runner);
  TensorMap state;
  return Executor(std::move(known), *provider).Run({}, state, draw);
}

void Assign(const std::string& name, const Tensor& first, Graph* graph) {
  const std::string where = Concat(
      "[", graph->file, "] the initialization_binding of \"", name, "\" ");
  Value* value = graph->Find(name);
  Check(value && value->is_initializer(), where,
        "expected an initializer, got ", value ? "another value" : "no value",
        " of that name");
  Check(first.dtype() == value->dtype && first.shape() == *value->shape, where,
        "expected a first value of ", Name(value->dtype), " ",
        ToString(*value->shape), ", got ", Name(first.dtype()), " ",
        ToString(first.shape()));
  value->data = first;
}

}  // namespace

void SetFirstValues(const std::vector<Initialization>& initializations,
                    const SessionOptions& options, Graph* graph) {
  uint64_t draw = 0;
  for (const Initialization& first : initializations) {
    TensorMap values =
        Compute(*first.graph, options,
                RandomBits(options.seed ^ kFirstDrawKey, draw++));
    for (const auto& [name, output] : first.bindings) {
      Assign(name, values.at(output), graph);
    }
  }
}

}  // namespace onnx_fp8
