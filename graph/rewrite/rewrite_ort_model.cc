// SPDX-License-Identifier: Apache-2.0
#include "graph/rewrite/rewrite_ort_model.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/fp8/scale_update.h"
#include "graph/onnx/import_ort.h"
#include "graph/onnx/infer_shapes.h"
#include "graph/onnx/model_file_internal.h"
#include "graph/onnx/onnx_convert_internal.h"
#include "graph/onnx/ort_training_model.h"
#include "graph/onnx/upgrade.h"
#include "graph/passes/dead_code.h"
#include "graph/schemas_internal.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

using Pairs = std::vector<std::pair<Value*, Value*>>;

// The newest opset of onnxruntime-training 1.19.2.
constexpr int kNewestOrtOpset = 21;

// Without its first result such a node computes nothing.
bool IsOrt(const Node& node, std::string_view op) {
  return node.domain == kOrtDomain && node.op == op && node.out(0);
}

std::unordered_set<const Node*> AncestorsOf(Value* value) {
  std::unordered_set<const Node*> seen;
  std::vector<const Value*> open = {value};
  while (!open.empty()) {
    const Node* node = open.back()->producer;
    open.pop_back();
    if (!node || !seen.insert(node).second) continue;
    for (const Value* in : node->inputs()) {
      if (in) open.push_back(in);
    }
  }
  return seen;
}

class OrtRewriter {
 public:
  OrtRewriter(const std::string& path, const OrtRewriteOptions& options)
      : options_(options), file_(ReadModelFile(path, options.budgets)) {
    for (const std::string& name : options.trained) names_[name] = {name};
    for (const std::string& name : options.frozen) names_[name] = {name};
    PlaceOrtOps(&file_.model);
    for (const auto& node : file_.model.graph().node()) {
      Check(node.domain() != kDomain, "[", path,
            "] is rewritten already: it holds ", node.domain(), ".",
            node.op_type(), "; rewrite the original artifacts instead");
    }
  }

  OrtRewriteReport Training(const std::string& out) {
    spec_ = options_.spec;
    spec_.names = names_;
    OrtRewriteReport report;
    std::set<std::string> fused = Decide(&report);
    auto graph = Load();
    Unfuse(*graph, &fused);
    Value* seed = FindSeed(*graph);
    Pairs gradients = Gradients(*graph);
    Fp8Plan plan = Fp8Rewrite(*graph, spec_, seed, gradients);
    Release(plan.slots, &report.slots);
    if (AnyDelayed(plan.slots)) {
      Builder b(*graph, "fp8.");
      AttachScaleUpdate(*graph, spec_.recipe, plan, AmaxVector(*graph, plan),
                        b.Constant(Tensor::Scalar(true)));
      report.scales = PackScales(*graph, plan, /*updates=*/true);
    }
    Write(*graph, out);
    return report;
  }

  void Eval(const std::string& out, const OrtRewriteReport& training) {
    spec_ = options_.spec;
    spec_.names = names_;
    auto graph = Load();
    Fp8Plan plan = Fp8Rewrite(*graph, spec_, nullptr, {}, &training.slots);
    if (AnyDelayed(training.slots)) PackScales(*graph, plan, false);
    Write(*graph, out);
  }

 private:
  // The model at the opset of the bodies, with types and roles.
  std::unique_ptr<Graph> Load() const {
    auto graph = file_.ToGraph(file_.model);
    graph->Sort();
    Upgrade(*graph, std::max(graph->opset, kBodyOpset));
    for (Value* value : graph->inputs) {
      if (options_.trained.contains(value->name)) {
        value->role = Role::kParameter;
      } else if (options_.frozen.contains(value->name)) {
        value->role = Role::kFrozen;
      }
    }
    for (Node& node : graph->nodes()) {
      try {
        InferNode(node, graph->opset);
      } catch (const Error&) {
        // The file has the types of other nodes.
      }
    }
    return graph;
  }

  // Turns FusedMatMuls with these results into MatMuls; null: all of them.
  static void Unfuse(Graph& graph, const std::set<std::string>* results) {
    for (auto it = graph.nodes().begin(); it != graph.nodes().end();) {
      Node* node = &*it++;
      bool chosen = IsOrt(*node, "FusedMatMul") &&
                    (!results || results->contains(node->out(0)->name));
      if (chosen) ImportOrtOp(graph, node);
    }
  }

  // Decides on a copy in which all products are visible. Returns the results of
  // the FusedMatMuls that run in FP8.
  std::set<std::string> Decide(OrtRewriteReport* report) {
    auto graph = Load();
    std::set<std::string> fused;
    for (const Node& node : graph->nodes()) {
      if (IsOrt(node, "FusedMatMul")) fused.insert(node.out(0)->name);
    }
    Unfuse(*graph, nullptr);
    report->decisions = DecideGemms(
        ClassifyGemms(*graph, FindSeed(*graph), Gradients(*graph)), spec_);
    CheckPatterns(report->decisions, spec_, file_.path);
    std::set<std::string> chosen;
    for (GemmDecision& d : report->decisions) {
      const std::string& y = d.gemm.node->out(0)->name;
      Check(!d.fp8 || !d.recipe.e8m0_scales, "[", file_.path,
            "] expected a recipe that opset ", kNewestOrtOpset,
            " can express, the newest of onnxruntime-training 1.19.2, got "
            "scales of float8e8m0, which need ",
            kE8M0Opset);
      if (d.fp8 && fused.contains(y)) chosen.insert(y);
      d.gemm.node = nullptr;
      d.gemm.weight = nullptr;
    }
    return chosen;
  }

  // Parameters and their gradients, which accumulators read.
  Pairs Gradients(Graph& graph) const {
    Pairs pairs;
    for (Node& node : graph.nodes()) {
      if (!IsOrt(node, "InPlaceAccumulatorV2") || !node.in(0) || !node.in(1)) {
        continue;
      }
      std::string name = node.in(0)->name;
      if (!name.ends_with(kOrtBuffer)) continue;
      name.resize(name.size() - std::string_view(kOrtBuffer).size());
      Value* parameter = graph.Find(name);
      if (parameter) pairs.push_back({parameter, node.in(1)});
    }
    Check(!pairs.empty(), "[", file_.path,
          "] expected a training model, with an InPlaceAccumulatorV2 for each "
          "gradient, got none");
    return pairs;
  }

  // The gradient of the loss by itself: a constant of one element that the
  // forward does not read, and on which every gradient depends.
  Value* FindSeed(Graph& graph) const {
    Check(!graph.outputs.empty(), "[", file_.path,
          "] expected a loss as first output, got no output");
    auto forward = AncestorsOf(graph.outputs[0]);
    Pairs gradients = Gradients(graph);
    for (Value* value : graph.Initializers()) {
      if (!IsFloat(value->dtype) || value->data.size() != 1) continue;
      bool backward = !value->uses.empty();
      for (const Node* reader : value->uses) {
        backward &= !forward.contains(reader);
      }
      if (!backward) continue;
      std::unordered_set<const Value*> reached = {value};
      for (const Node& node : graph.nodes()) {
        bool depends = std::ranges::any_of(node.inputs(), [&](const Value* in) {
          return reached.contains(in);
        });
        if (depends) {
          reached.insert(node.outputs().begin(), node.outputs().end());
        }
      }
      bool all = std::ranges::all_of(gradients, [&](const auto& pair) {
        return reached.contains(pair.second);
      });
      if (all) return value;
    }
    Fail("[", file_.path,
         "] expected a constant gradient of the loss from which all gradients "
         "are computed, got none");
  }

  static void Release(const std::vector<ScaleSlot>& from,
                      std::vector<ScaleSlot>* to) {
    *to = from;
    for (ScaleSlot& slot : *to) slot.amax = nullptr;
  }

  // Scales and history become one input. If the graph updates them, its last
  // node writes the new values over the old ones; every reader of the old ones
  // is an ancestor of that node. Returns the initial value.
  Tensor PackScales(Graph& graph, const Fp8Plan& plan, bool updates) const {
    int64_t n = plan.scale->data.size();
    int64_t h = spec_.recipe.amax_history;
    Tensor initial = Tensor::Zeros(DType::kFloat, {h + 1, n});
    std::copy_n(plan.scale->data.data<float>(), n, initial.data<float>());
    Value* state = graph.AddInput(kOrtScales, DType::kFloat, initial.shape());
    state->role = Role::kFrozen;
    Node* first = &graph.nodes().front();
    Builder head(graph, "fp8.", first);
    Value* scale = head.Op("Gather", {state, head.Int(0)});
    std::vector<StateBinding> bindings = std::move(graph.state);
    graph.state.clear();
    graph.ReplaceUses(plan.scale, scale);
    if (updates) {
      Value* history =
          head.Op("Slice", {state, head.Ints({1}), head.Ints({h + 1})});
      graph.ReplaceUses(plan.history, history);
      Builder b(graph, "fp8.");
      Value* row =
          b.Op("Unsqueeze", {NextOf(bindings, plan.scale), b.Ints({0})});
      Value* next = b.Op("Concat", {row, NextOf(bindings, plan.history)},
                         {{"axis", int64_t{0}}});
      Overwrite(graph, b, state, next);
    }
    for (Value* value : {plan.scale, plan.history}) {
      if (value && value->uses.empty()) graph.RemoveValue(value);
    }
    return initial;
  }

  static Value* NextOf(const std::vector<StateBinding>& bindings,
                       const Value* state) {
    return std::ranges::find(bindings, state, &StateBinding::state)->next;
  }

  // The accumulator's result is true. The first gradient's accumulator waits
  // for it, so that it is no dead code and the model needs no other output.
  void Overwrite(Graph& graph, Builder& b, Value* state, Value* next) const {
    Value* yes = b.Constant(Tensor::Scalar(true).Reshaped({1}));
    Node* write =
        graph.AddNode("InPlaceAccumulatorV2", {state, next, yes},
                      {graph.FreshName("fp8.updated")}, {}, kOrtDomain);
    write->name = write->out(0)->name;
    write->out(0)->dtype = DType::kBool;
    write->out(0)->shape = Shape{1};
    for (Node& node : graph.nodes()) {
      bool accumulates = IsOrt(node, "InPlaceAccumulatorV2") && node.in(2);
      if (&node == write || !accumulates) continue;
      Value* both = b.Op("And", {node.in(2), write->out(0)});
      graph.SetInput(&node, 2, both);
      break;
    }
    graph.Sort();
  }

  // Unchanged nodes come from the file.
  void Write(Graph& graph, const std::string& out) {
    RemoveDeadCode(graph);
    onnx::ModelProto* model = &file_.model;
    onnx::GraphProto* g = model->mutable_graph();
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Swap(g->mutable_node());
    for (const Node& node : graph.nodes()) {
      onnx::NodeProto* proto = g->add_node();
      if (node.source >= 0) {
        proto->Swap(nodes.Mutable(node.source));
      } else {
        *proto = ToProto(node);
      }
    }
    RestoreOrtOps(model);
    std::map<std::string, const Value*> held;
    for (const Value* value : graph.Initializers()) held[value->name] = value;
    google::protobuf::RepeatedPtrField<onnx::TensorProto> tensors;
    tensors.Swap(g->mutable_initializer());
    for (auto& tensor : tensors) {
      if (held.erase(tensor.name()) > 0) g->add_initializer()->Swap(&tensor);
    }
    for (const auto& [name, value] : held) {
      ToProto(value->data, name, g->add_initializer());
    }
    google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> infos;
    infos.Swap(g->mutable_value_info());
    for (auto& info : infos) {
      if (graph.Find(info.name())) g->add_value_info()->Swap(&info);
    }
    if (const Value* scales = graph.Find(kOrtScales)) AddScalesInput(*scales);
    SetOnnxOpset(model, graph.opset);
    AddFunctions(graph, model);
    SetProperty(model, "onnx_fp8.recipe", RecipeText(spec_.recipe));
    WriteModelFile(model, {}, out, file_.path, {});
  }

  // Behind the last parameter, in all models.
  void AddScalesInput(const Value& scales) {
    auto* inputs = file_.model.mutable_graph()->mutable_input();
    int last = 0;
    for (int i = 0; i < inputs->size(); ++i) {
      if (names_.contains(inputs->Get(i).name())) last = i;
    }
    AddInfo(scales, inputs->Add());
    for (int i = inputs->size() - 1; i > last + 1; --i) {
      inputs->SwapElements(i, i - 1);
    }
  }

  const OrtRewriteOptions& options_;
  ModelFile file_;
  ParameterNames names_;
  Fp8Spec spec_;
};

}  // namespace

OrtRewriteReport RewriteOrtTraining(const std::string& in,
                                    const std::string& out,
                                    const OrtRewriteOptions& options) {
  return OrtRewriter(in, options).Training(out);
}

void RewriteOrtEval(const std::string& in, const std::string& out,
                    const OrtRewriteOptions& options,
                    const OrtRewriteReport& training) {
  OrtRewriter(in, options).Eval(out, training);
}

}  // namespace onnx_fp8
