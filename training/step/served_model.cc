// SPDX-License-Identifier: Apache-2.0
#include "training/step/served_model.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/joined.h"
#include "graph/export_record.h"
#include "graph/onnx/written_file.h"
#include "graph/op_facts.h"
#include "graph/passes/dead_code.h"
#include "onnx_fp8/recipe_text.h"
#include "providers/run/executor.h"
#include "training/make_provider.h"
#include "training/step/torch_weights.h"

namespace onnx_fp8 {
namespace {

constexpr std::string_view kWeightWord = ".weight";
constexpr int64_t kServedBlock = 128, kServedGroup = 32;

// The run's model without what only training needs.
ServedGraph GraphOf(const ServedSource& source) {
  SessionOptions plain = source.options;
  const bool merges = source.model.lora.has_value();
  plain.loss.kind.clear();
  plain.lora.clear();
  plain.segment_ids.clear();  // a served row is one document
  if (merges) plain.train = plain.freeze = {};
  ImportReport report;
  auto graph = ImportModel(plain, ImportFor::kForecast, source.runner, &report);
  Fp8Spec spec = source.fp8;
  if (merges) {
    // No step has measured the merged weights.
    for (Value* value : graph->Initializers()) {
      if (value->role == Role::kParameter) value->role = Role::kFrozen;
    }
    spec.own_frozen_scales = true;
  }
  spec.names = NameParameters(*graph);
  return BuildServedGraph(std::move(graph), spec,
                          source.slots ? &*source.slots : nullptr,
                          source.options.dtype, source.runner);
}

// The quantizer's result `i`, as the state of its maker; null: nothing reads
// it.
const Value* StateOf(const Graph& maker, size_t i) {
  for (const StateBinding& binding : maker.state) {
    const Node* quantizer = binding.next->producer;
    if (quantizer->out(i) == binding.next) return binding.state;
  }
  return nullptr;
}

const Node& QuantizerIn(const FrozenCodes& codes) {
  return *codes.maker->state.front().next->producer;
}

// Whether the quantizer reads the transpose of the weight, rounded to 16 bits
// or not; nullopt: it reads a value that is computed from the weight.
std::optional<bool> ReadsTransposed(const Node& quantizer) {
  bool transposed = false;
  const Value* x = quantizer.in(0);
  while (x->producer) {
    const Node& node = *x->producer;
    if (node.Is("Transpose")) {
      const std::vector<int64_t> swap = {1, 0};
      transposed ^= node.Ints("perm", swap) == swap;
    } else if (FactsOf(node).kind != OpKind::kRound && !node.Is("Cast")) {
      return std::nullopt;
    }
    x = node.in(0);
  }
  if (x->role != Role::kFrozen || x->rank() != 2) return std::nullopt;
  return transposed;
}

// Whether the rows of the codes are the layer's outputs; nullopt: products read
// both, or something else reads the codes.
std::optional<bool> RowsAreOutputs(const Value& codes) {
  std::optional<bool> rows;
  for (const Node* node : codes.uses) {
    if (FactsOf(*node).kind != OpKind::kScaledProduct) return std::nullopt;
    const bool left = node->in(0) == &codes;
    const bool one =
        left ? node->Int("transA", 0) == 0 : node->Int("transB", 0) != 0;
    if (rows && *rows != one) return std::nullopt;
    rows = one;
  }
  return rows;
}

Tensor Turned(const Tensor& x, bool turns) {
  return turns && x.rank() == 2 ? Transposed(x) : x;
}

Shape TurnedShape(Shape shape, bool turns) {
  if (turns && shape.size() == 2) std::swap(shape[0], shape[1]);
  return shape;
}

std::optional<CodeScales> ScalesOf(const Node& quantizer, const Value& scale,
                                   bool turns) {
  if (scale.rank() == 0) return CodeScales::kTensor;
  int64_t rows = quantizer.Int("block_rows", 0);
  int64_t columns = quantizer.Int("block_columns", 0);
  if (turns) std::swap(rows, columns);
  if (rows == 0 && columns == 0) return CodeScales::kTensor;
  if (rows == 1 && columns == 0) return CodeScales::kRows;
  const bool block = rows == kServedBlock && columns == kServedBlock;
  if (block) return CodeScales::kBlocks;
  if (rows == 1 && columns == kServedGroup) return CodeScales::kGroups;
  return std::nullopt;
}

// The quantizer of the product's operand that is not `codes`, if its scale is
// kept from step to step; else null.
const Node* KeepingQuantizer(const Node& product, const Value& codes) {
  const Value* other = product.in(product.in(0) == &codes ? 2 : 0);
  const Node* quantizer = other->producer;
  return quantizer && quantizer->op == "QuantizeWith" ? quantizer : nullptr;
}

bool KeepsInputs(const Value& codes) {
  return std::ranges::any_of(codes.uses, [&](const Node* product) {
    return KeepingQuantizer(*product, codes) != nullptr;
  });
}

// The kept scale of the operand that is not `codes`; 0: there is none (yet), or
// the operand is no e4m3.
float KeptScale(const Node& product, const Value& codes) {
  const Node* quantizer = KeepingQuantizer(product, codes);
  if (!quantizer || quantizer->out(0)->dtype != DType::kE4M3) return 0;
  const Node* gather = quantizer->in(1)->producer;
  if (!gather || !gather->Is("Gather")) return 0;
  const Value *scales = gather->in(0), *index = gather->in(1);
  if (!scales->is_initializer() || !index->is_constant()) return 0;
  return scales->data.data<float>()[ToInts(index->data)[0]];
}

// The one scale that all products which read the codes keep for their inputs.
// nullopt: a product keeps no scale, or two products keep different scales.
std::optional<float> InputScale(const Value& codes) {
  std::optional<float> scale;
  for (const Node* product : codes.uses) {
    const float one = KeptScale(*product, codes);
    if (one <= 0 || (scale && *scale != one)) return std::nullopt;
    scale = one;
  }
  return scale;
}

// Powers of two as bytes b that stand for 2^(b - 127).
Tensor Exponents(const Tensor& powers) {
  const auto bits =
      std::make_shared<Tensor>(ConvertTo(powers, DType::kE8M0).Clone());
  return Tensor::View(DType::kUInt8, powers.shape(), bits, bits->raw());
}

// A tensor in the dtype of the value that it becomes.
Tensor NumbersFor(const Value& value, const TensorSource& source) {
  const Tensor pulled = source.Pull();
  return pulled.dtype() == value.dtype ? pulled
                                       : ConvertTo(pulled, value.dtype);
}

std::string ModuleOf(const std::string& fqn) {
  return fqn.ends_with(kWeightWord)
             ? fqn.substr(0, fqn.size() - kWeightWord.size())
             : "";
}

}  // namespace

ServedModel::ServedModel(ServedSource source)
    : source_(std::move(source)),
      provider_(MakeProvider(ProviderNames().front())) {
  const std::string& file = source_.model.graph->file;
  Check(!source_.model.step, "[", file,
        "] expected a run of a model for weights in FP8, got one of a training "
        "step: an export to an .onnx file of its model gives that the weights");
  served_ = GraphOf(source_);
  Check(!served_.codes.empty(), "[", file,
        "] expected a run with layers in FP8, got none: train with `recipe` "
        "tensorwise, rowwise or blockwise, or write the weights as bf16");
}

TensorMap ServedModel::Make(const FrozenCodes& codes) {
  if (fitted_.insert(codes.maker.get()).second) {
    SessionOptions plain;
    plain.budgets = source_.options.budgets;
    FitToKernels(*codes.maker, provider_->Kernels(), plain, source_.evaluator,
                 source_.runner);
  }
  TensorMap state;
  for (const Value* value : codes.maker->Initializers()) {
    auto weight = source_.weights.find(value->name);
    if (weight == source_.weights.end()) continue;
    state[value->name] = NumbersFor(*value, weight->second);
  }
  Executor(codes.maker, *provider_).Run({}, state);
  TensorMap made;
  for (const std::string& name : codes.copies) made[name] = state.at(name);
  return made;
}

std::optional<ServedCodes> ServedModel::LayerOf(const FrozenCodes& codes,
                                                std::string* reason) {
  const TrainingModel& model = source_.model;
  const std::string& weight = codes.weights.front();
  const Node& quantizer = QuantizerIn(codes);
  const Value* made = StateOf(*codes.maker, 0);
  const Value* scale = StateOf(*codes.maker, 1);
  const auto no = [&](const char* why) {
    *reason = why;
    return std::nullopt;
  };
  const auto transposed = ReadsTransposed(quantizer);
  if (codes.weights.size() != 1 || !made || !scale || !transposed) {
    return no("the codes are of a value that is computed from the weight");
  }
  if (made->dtype != DType::kE4M3) return no("the codes are no e4m3");
  if (served_.graph->Find(weight)) {
    return no("something else reads the weight, too");
  }
  const bool tied = std::ranges::any_of(
      model.copies, [&](const TiedCopy& copy) { return copy.first == weight; });
  if (tied) return no("the weight has two names");
  const bool turns = model.names.at(weight).transposed != *transposed;
  const auto rows = RowsAreOutputs(CodesIn(codes));
  if (!rows) return no("it is read in two orientations");
  if (*rows == turns) return no("the module keeps the weight as [in, out]");
  const auto scales = ScalesOf(quantizer, *scale, turns);
  if (!scales) return no("one scale is for a part of another shape");
  const bool groups = *scales == CodeScales::kGroups;
  const Shape sides = TurnedShape(*made->shape, turns);
  if (groups && quantizer.Int("pow2", 0) == 0) {
    return no("its scales for 32 numbers each are no powers of two");
  }
  if (groups && sides[1] % kServedGroup != 0) {
    return no("its inputs are no multiple of 32");
  }
  Shape shape = TurnedShape(*scale->shape, turns);
  if (*scales == CodeScales::kTensor) shape = {1};
  ServedCodes layer = {
      *scales,
      TensorSource(made->dtype, sides,
                   [this, &codes, turns, made, scale] {
                     TensorMap all = Make(codes);
                     scales_[scale->name] = all.at(scale->name);
                     return Turned(all.at(made->name), turns);
                   }),
      TensorSource(
          groups ? DType::kUInt8 : DType::kFloat, shape,
          [this, &codes, turns, scale, shape, groups] {
            const Tensor x = Turned(ScaleOf(codes, scale->name), turns);
            return (groups ? Exponents(x) : ConvertTo(x, DType::kFloat))
                .Reshaped(shape);
          })};
  if (*scales == CodeScales::kTensor || *scales == CodeScales::kRows) {
    layer.input_scale = InputScale(CodesIn(codes));
  }
  return layer;
}

const Value& ServedModel::CodesIn(const FrozenCodes& codes) const {
  return *served_.graph->Find(StateOf(*codes.maker, 0)->name);
}

Tensor ServedModel::ScaleOf(const FrozenCodes& codes, const std::string& name) {
  auto made = scales_.extract(name);
  return made ? made.mapped() : Make(codes).at(name);
}

std::map<std::string, ServedCodes> ServedModel::TakeLayers(
    SourceMap* state, std::vector<std::string>* remarks) {
  std::map<std::string, ServedCodes> layers;
  std::map<std::string, std::vector<std::string>> left;  // by reason
  std::map<std::string, int> makers;                     // by weight
  std::vector<std::string> measured;  // whose inputs have kept scales
  for (const FrozenCodes& codes : served_.codes) {
    for (const std::string& weight : codes.weights) ++makers[weight];
  }
  for (const FrozenCodes& codes : served_.codes) {
    const std::string& fqn = source_.model.names.at(codes.weights.front()).fqn;
    const std::string module = ModuleOf(fqn);
    std::string reason = "the parameter's name does not end in .weight";
    if (makers.at(codes.weights.front()) > 1) {
      reason = "several recipes make codes of it";
    } else if (!module.empty() && state->contains(fqn)) {
      if (auto layer = LayerOf(codes, &reason)) {
        const bool keeps = KeepsInputs(CodesIn(codes));
        if (keeps && !layer->input_scale) measured.push_back(module);
        layers.emplace(module, std::move(*layer));
        state->erase(fqn);
        continue;
      }
    }
    left[reason].push_back(module.empty() ? fqn : module);
  }
  if (!measured.empty()) {
    remarks->push_back(Concat("servers measure the inputs of ",
                              Joined(measured, 8),
                              ": a folder has one kept scale of a layer's "
                              "inputs, in e4m3, beside one "
                              "scale for the weight or for each of its rows"));
  }
  std::vector<std::string> stay;
  for (auto& [reason, modules] : left) {
    std::ranges::sort(modules);
    modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
    stay.push_back(Concat(
        Joined(modules, 8),
        modules.size() == 1 ? " runs in FP8 and is" : " run in FP8 and are",
        " written without codes: ", reason));
  }
  Check(!layers.empty(), "[", source_.model.graph->file,
        "] expected a layer whose codes a folder can hold, got none (a file of "
        "onnx-fp8 holds all): ",
        Joined(stay));
  std::ranges::move(stay, std::back_inserter(*remarks));
  return layers;
}

void ServedModel::WriteOnnx(const std::string& path,
                            const WriteOptions& write) {
  Graph& graph = *served_.graph;
  for (const FrozenCodes& codes : served_.codes) {
    for (auto& [name, tensor] : Make(codes)) {
      Value* value = graph.Find(name);
      if (!value) continue;
      value->data = tensor;
      const char* word = IsFloat8(tensor.dtype()) ? ".codes" : ".scale";
      graph.Rename(value, graph.FreshName(codes.weights.front() + word));
    }
  }
  for (Value* value : graph.Initializers()) {
    auto weight = source_.weights.find(value->name);
    if (weight != source_.weights.end()) {
      value->data = NumbersFor(*value, weight->second);
    }
    value->role = Role::kNone;
  }
  RemoveDeadCode(graph);
  graph.metadata.erase(kExportRecord);
  graph.metadata[kRecipeNote] = RecipeText(source_.options.recipe);
  WriteModel(graph, path, write);
}

std::vector<std::string> ServedModel::Remarks() const {
  std::vector<std::string> remarks;
  if (source_.model.lora) {
    remarks.push_back(
        "the codes are of weights into which adapters are merged in float32: "
        "no step has computed with them");
  }
  if (source_.options.filter.speeds) {
    remarks.push_back(
        "`auto_filter` chooses layers here without the size of a batch: a step "
        "may have chosen others");
  }
  return remarks;
}

}  // namespace onnx_fp8
