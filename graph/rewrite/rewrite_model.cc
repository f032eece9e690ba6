// SPDX-License-Identifier: Apache-2.0
#include "graph/rewrite/rewrite_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/check.h"
#include "base/copy_file.h"
#include "graph/builder.h"
#include "graph/fp8/scale_update.h"
#include "graph/infer_shapes.h"
#include "graph/onnx/inline_functions_internal.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/step_notes.h"
#include "graph/onnx/training_info_internal.h"
#include "graph/onnx/upgrade.h"
#include "graph/onnx/written_file.h"
#include "graph/passes/autocast.h"
#include "graph/passes/trained_parameters.h"
#include "graph/schemas_internal.h"
#include "graph/views.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

// A mark on a product in a function's body that names the function. It stays on
// the product when the function is inlined.
constexpr char kFunction[] = "onnx_fp8.function";

// Marks the products of all functions. Returns the functions by mark.
std::map<std::string, FunctionName> MarkProducts(onnx::ModelProto* model) {
  std::map<std::string, FunctionName> functions;
  for (auto& function : *model->mutable_functions()) {
    FunctionName id{function.domain(), function.name()};
    for (auto& node : *function.mutable_node()) {
      if (node.op_type() != "MatMul" && node.op_type() != "Gemm") continue;
      std::string mark = Concat(id.first, "/", id.second);
      auto* entry = node.add_metadata_props();
      entry->set_key(kFunction);
      entry->set_value(mark);
      functions[mark] = id;
    }
  }
  return functions;
}

// The functions of `called`, their callers, and so on.
std::set<FunctionName> WithCallers(const onnx::ModelProto& model,
                                   std::set<FunctionName> called) {
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& function : model.functions()) {
      for (const auto& node : function.node()) {
        if (!called.contains({node.domain(), node.op_type()})) continue;
        grown |= called.insert({function.domain(), function.name()}).second;
      }
    }
  }
  return called;
}

class ModelRewriter {
 public:
  ModelRewriter(const std::string& in, const RewriteOptions& options)
      : file_(ReadModelFile(in, options.budgets)),
        options_(options),
        spec_(options.spec) {}

  RewriteReport Run(PassRunner& runner) {
    Refuse();
    report_.opset_before = OnnxOpset(file_.model, file_.path);
    bool functions = file_.model.functions_size() > 0;
    if (functions && Casts()) {
      InlineFunctions(&file_.model, file_.path);
    } else if (functions) {
      InlineAdmitted();
    }
    auto graph = Decide(file_.model, &report_.decisions);
    if (!functions) CheckPatterns(report_.decisions, spec_, file_.path);
    for (const GemmDecision& d : report_.decisions) report_.rewritten += d.fp8;
    if (report_.rewritten == 0 && !Casts()) {
      report_.opset_after = report_.opset_before;
      return report_;
    }
    if (graph->opset < NeededOpset(*graph) &&
        file_.model.functions_size() > 0) {
      // A function that stays would keep its old opset.
      InlineFunctions(&file_.model, file_.path);
      graph = Decide(file_.model, &report_.decisions);
    }
    runner.Begin("rewrite", Verifying::kNo);
    runner.Run(ForwardPasses(std::max(graph->opset, NeededOpset(*graph))),
               *graph);
    WriteBack(*graph);
    report_.opset_after = graph->opset;
    return report_;
  }

  ModelFile& file() { return file_; }

 private:
  bool Casts() const { return options_.dtype != DType::kFloat; }

  void Refuse() const {
    auto graph = file_.ToGraph(file_.model);
    RequireNoStep(*graph);
    Written kind = WrittenAs(*graph);
    Check(kind == Written::kNo, DescribeWritten(*graph, kind),
          ": it is rewritten already; expected the model that it was made "
          "from");
    for (const auto& node : file_.model.graph().node()) {
      Check(node.domain() != kDomain, "[", file_.path,
            "] is rewritten already: it holds ", node.domain(), ".",
            node.op_type(), "; rewrite the original model instead");
    }
  }

  // Everything else stays as it is in the file.
  Passes ForwardPasses(int opset) {
    Passes list = {
        {"Upgrade", [opset](Graph& graph) { Upgrade(graph, opset); }}};
    if (Casts()) {
      list.push_back(
          {"Autocast", [this](Graph& g) { Autocast(g, options_.dtype); }});
    }
    list.push_back({"Fp8Rewrite", [this](Graph& g) {
                      plan_ = Fp8Rewrite(g, spec_, nullptr, {});
                    }});
    list.push_back(
        {"AttachScales", [this](Graph& graph) { AttachScales(graph, plan_); }});
    list.push_back({"DropIdleTransposes", DropIdleTransposes});
    return list;
  }

  // The opset that bodies of our ops need, and nodes that came from functions.
  int NeededOpset(const Graph& graph) const {
    int opset = kBodyOpset;
    for (const GemmDecision& d : report_.decisions) {
      if (d.fp8 && d.recipe.e8m0_scales) opset = kE8M0Opset;
    }
    for (const Node& node : graph.nodes()) {
      auto note = node.metadata.find(kOpsetNote);
      if (note == node.metadata.end()) continue;
      opset = std::max(opset, ParseOpsetNote(note->second, file_.path));
    }
    return opset;
  }

  // Infers the graph's shapes where possible, on a copy in the newest form: the
  // checks before ONNX's inference are written for that form.
  void InferFrom(const onnx::ModelProto& model, Graph* graph) const {
    auto newest = file_.ToGraph(model);
    try {
      Upgrade(*newest);
    } catch (const Error&) {
      return;
    }
    for (Node& node : newest->nodes()) {
      try {
        InferNode(node, newest->opset);
      } catch (const Error&) {
        // Shapes only refine the decision; the checker judges the model.
      }
    }
    for (Value* value : graph->Values()) {
      const Value* inferred = newest->Find(value->name);
      if (!inferred || value->is_initializer()) continue;
      value->dtype = inferred->dtype;
      value->shape = inferred->shape;
    }
  }

  std::unique_ptr<Graph> Decide(const onnx::ModelProto& model,
                                std::vector<GemmDecision>* decisions) {
    auto graph = file_.ToGraph(model);
    MarkParameters(*graph, options_.patterns);
    InferFrom(model, graph.get());
    spec_.names = NameParameters(*graph);
    *decisions = DecideGemms(ClassifyGemms(*graph, nullptr, {}), spec_);
    return graph;
  }

  // Whether scales are kept, in a state or a file. Their names depend on all
  // layers that read a tensor, also on layers that the filter keeps out.
  bool KeepsScales() const {
    return spec_.Uses(Scaling::kDelayed) || spec_.Uses(Scaling::kStatic);
  }

  // Inlines the functions that hold an admitted product; if scales are kept,
  // also functions with a product that the filter keeps out. To find them, it
  // first makes a copy in which all functions with a product are inlined.
  void InlineAdmitted() {
    onnx::ModelProto copy = file_.model;
    auto functions = MarkProducts(&copy);
    std::set<FunctionName> holders, admitted;
    for (const auto& [mark, function] : functions) holders.insert(function);
    InlineFunctions(&copy, file_.path, WithCallers(copy, std::move(holders)));
    std::vector<GemmDecision> decisions;
    auto graph = Decide(copy, &decisions);
    CheckPatterns(decisions, spec_, file_.path);
    for (const GemmDecision& decision : decisions) {
      const auto& metadata = decision.gemm.node->metadata;
      auto mark = metadata.find(kFunction);
      bool wanted = KeepsScales() ? decision.possible : decision.fp8;
      if (!wanted || mark == metadata.end()) continue;
      auto function = functions.find(mark->second);
      if (function != functions.end()) admitted.insert(function->second);
    }
    if (admitted.empty()) return;
    InlineFunctions(&file_.model, file_.path,
                    WithCallers(file_.model, std::move(admitted)));
  }

  void AttachScales(Graph& graph, const Fp8Plan& plan) {
    if (plan.slots.empty()) return;
    if (AnyDelayed(plan.slots)) {
      Builder b(graph, "fp8.");
      Value* ok = b.Constant(Tensor::Scalar(true));
      AttachScaleUpdate(graph, spec_.recipe, plan, AmaxVector(graph, plan), ok);
    }
    SetProperty(&file_.model, kScaleSlotsNote, SlotsText(plan.slots));
  }

  static void DropIdleTransposes(Graph& graph) {
    std::vector<Node*> idle;
    for (Node& node : graph.nodes()) {
      Value* y = node.out(0);
      bool output =
          y && std::ranges::find(graph.outputs, y) != graph.outputs.end();
      if (node.Is("Transpose") && y->uses.empty() && !output &&
          WeightBehind(node.in(0))) {
        idle.push_back(&node);
      }
    }
    for (Node* node : idle) graph.RemoveNode(node);
  }

  // Unchanged parts come from the file. The graph gives the rest: other nodes,
  // and initializers that the file lacks.
  void WriteBack(const Graph& graph) {
    onnx::GraphProto* g = file_.model.mutable_graph();
    std::set<std::string> held;
    for (const auto& tensor : g->initializer()) held.insert(tensor.name());
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(g->mutable_node());
    for (const Node& node : graph.nodes()) {
      if (node.source >= 0) {
        g->add_node()->Swap(nodes.Mutable(node.source));
      } else {
        *g->add_node() = ToProto(node);
      }
    }
    for (const Value* value : graph.Initializers()) {
      if (held.contains(value->name)) continue;
      ToProto(value->data, value->name, g->add_initializer());
    }
    DropStaleInfo(graph, g);
    for (const StateBinding& binding : graph.state) {
      AddInfo(*binding.state, g->add_input());
      AddInfo(*binding.next, g->add_output());
    }
    AddBindings(graph, &file_.model);
    SetOnnxOpset(&file_.model, graph.opset);
    AddFunctions(graph, &file_.model);
    if (report_.rewritten == 0) return;
    SetProperty(&file_.model, kRecipeNote, RecipeText(spec_.recipe));
  }

  static void DropStaleInfo(const Graph& graph, onnx::GraphProto* g) {
    google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> infos;
    infos.Swap(g->mutable_value_info());
    for (auto& info : infos) {
      if (graph.Find(info.name())) g->add_value_info()->Swap(&info);
    }
  }

  ModelFile file_;
  const RewriteOptions& options_;
  Fp8Spec spec_;  // the options' spec, with the names of the parameters
  Fp8Plan plan_;
  RewriteReport report_;
};

}  // namespace

void CopyTrainable(const std::string& in, const std::string& out,
                   const ExternalCopyObserver& observer, bool may_miss) {
  ModelFile file = ReadModelFile(in);
  MissingData missing;
  if (may_miss) file.external->set_missing(&missing);
  std::set<std::string> locations = DataLocations(file.model);
  {
    auto graph = file.TakeGraph();
    if (WrittenAs(*graph) == Written::kForward) RequireNoForward(*graph);
  }
  for (const std::string& name : missing.files) locations.erase(name);
  CopyExternalData(file, locations, out, observer);
  CopyFileAtomically(InputFile(in), out);
  for (const auto& entry : file.model.metadata_props()) {
    bool micro = entry.key() == kStepNotes &&
                 ParseNotes(entry.value(), in).part == "micro";
    if (micro) CopyTrainable(ApplyPath(in), ApplyPath(out), observer, may_miss);
  }
}

RewriteReport RewriteModel(const std::string& in, const std::string& out,
                           const RewriteOptions& options) {
  std::error_code none;
  Check(!fs::equivalent(in, out, none), "[", out,
        "] expected another file than the model itself");
  ModelRewriter rewriter(in, options);
  PassRunner own;
  RewriteReport report = rewriter.Run(options.runner ? *options.runner : own);
  const ModelFile& file = rewriter.file();
  CopyExternalData(file, DataLocations(file.model), out, options.observer);
  if (report.rewritten == 0 && options.dtype == DType::kFloat &&
      !options.write.external_data) {
    CopyFileAtomically(InputFile(in), out);
  } else {
    WriteModelFile(&rewriter.file().model, {}, out, in, options.write);
  }
  return report;
}

}  // namespace onnx_fp8
