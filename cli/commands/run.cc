// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "base/joined.h"
#include "cli/array_output.h"
#include "cli/commands/commands.h"
#include "cli/feeds.h"
#include "cli/output.h"
#include "data/arrays.h"
#include "graph/onnx/onnx_io.h"
#include "graph/onnx/written_file.h"
#include "graph/passes/specialize.h"
#include "providers/passes/expand_missing.h"
#include "providers/run/executor.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"
#include "training/step/pipelines.h"

namespace onnx_fp8 {
namespace {

const Option kRunOptions[] = {
    {"Own", "data", OptionKind::kFiles,
     ".npz, .npy or .safetensors: arrays named like the inputs"},
    {"Own",
     "out",
     OptionKind::kFile,
     ".npz or .safetensors",
     "",
     {.letter = "o"}},
};

CommandHelp RunHelp() {
  return {"run",
          "Run a model once and write its outputs.",
          {{"Options",
            {"Model", "Own", "Provider", "profile", "expand", "Budget",
             "Machine"}}},
          {"onnx-fp8 run model.onnx --data batch.npz -o outputs.npz"}};
}

// The arrays of all files; undefined if the graph does not use an array.
TensorMap ReadAll(const Graph& graph, const std::vector<std::string>& files,
                  const Budgets& budgets) {
  TensorMap arrays;
  for (const std::string& path : files) {
    ArrayFile file(path, budgets);
    for (const std::string& name : file.names()) {
      const Value* value = graph.Find(name);
      bool used = value && (value->is_input || value->is_initializer());
      Tensor array = used ? file.Read(name) : Tensor();
      Check(arrays.emplace(name, array).second, "[", path, "] array \"", name,
            "\" is in another file too");
    }
  }
  return arrays;
}

// Splits `arrays` into feeds of the graph's inputs and new values of its
// initializers; state is both an input and an initializer.
TensorMap Bind(Graph& graph, const TensorMap& arrays) {
  TensorMap feeds;
  for (const auto& [name, array] : arrays) {
    Value* value = graph.Find(name);
    if (value && value->is_initializer()) {
      Check(array.shape() == value->data.shape(), "[", name,
            "] expected shape ", ToString(value->data.shape()), ", got ",
            ToString(array.shape()));
      value->data = FeedAs(array, value->data.dtype(), name);
    } else if (value && value->is_input) {
      feeds[name] = FeedAs(array, value->dtype, name);
    } else {
      Note("the model has no input " + name);
    }
  }
  for (const Value* input : graph.inputs) {
    if (feeds.contains(input->name)) continue;
    std::vector<std::string> names;
    for (const auto& [name, array] : arrays) names.push_back(name);
    Fail("[", graph.file, "] expected an array for the input \"", input->name,
         "\", got ", names.empty() ? "none" : Joined(names));
  }
  return feeds;
}

TensorMap Forward(const OptionSet& flags) {
  const Budgets budgets = BudgetsOf(flags);
  const std::string profile = flags.Text("profile");
  std::unique_ptr<Graph> model =
      ReadModel(flags.Text("MODEL"), {.budgets = budgets});
  Written kind = WrittenAs(*model);
  if (IsStep(kind)) {
    Note(DescribeWritten(*model, kind) +
         ": it runs once, with the file's state where `data` has none; the new "
         "state is among the outputs");
  }
  model->state.clear();  // the new state is an output
  TensorMap feeds = Bind(*model, ReadAll(*model, flags.List("data"), budgets));
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : feeds) shapes[name] = tensor.shape();
  std::unique_ptr<Evaluator> evaluator = MakeEvaluator();
  std::unique_ptr<ExecutionProvider> provider =
      MakeProvider(flags.Text("provider"), ProviderOptionsOf(flags));
  SpecializeReport report;
  Spending spending(budgets);
  std::shared_ptr<Graph> graph = Specialize(*model, shapes, *evaluator, &report,
                                            ValuesOf(*model, feeds), &spending);
  for (const auto& [name, value] : report.values) feeds.erase(name);
  PassRunner runner;
  runner.Begin("run");
  FuseForward(*graph, runner);
  const std::vector<std::string> expand = flags.List("expand");
  ExpandMissing(*graph, provider->Kernels(), {expand.begin(), expand.end()},
                evaluator.get(), budgets);
  Executor executor(graph, *provider);
  Profiler profiler;
  if (!profile.empty()) executor.set_profiler(&profiler);
  TensorMap state;
  TensorMap outputs = executor.Run(feeds, state);
  for (auto& [name, tensor] : outputs) tensor = provider->ToHost(tensor);
  if (!profile.empty()) profiler.WriteChromeTrace(profile);
  return outputs;
}

}  // namespace

int Run(const Arguments& arguments) {
  Flags flags(RunHelp(), kRunOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL", "data", "out"});
  RequireArrayPath(flags.Text("out"));
  ApplyMachine(flags);
  WriteArrays(flags.Text("out"), Forward(flags));
  return 0;
}

}  // namespace onnx_fp8
