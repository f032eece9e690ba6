// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/add_adapters.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/joined.h"

namespace onnx_fp8 {
namespace {

constexpr std::string_view kWeightEnd = ".weight";

// A product that multiplies by the weight from the right.
struct LayerUse {
  Node* node;
  bool out_first;  // the weight in the file is (out, in)
};

// How the graph reads a weight.
struct LayerUses {
  std::vector<LayerUse> products;
  std::string obstacle;  // not empty: it is the weight of no linear layer
};

class AdapterPass {
 public:
  AdapterPass(Graph& graph, const LoraSpec& spec,
              std::vector<InitializerReport>* tensors)
      : graph_(graph), spec_(spec), tensors_(*tensors) {
    for (const Value* value : graph.CapturedBySubgraphs()) {
      captured_.insert(value);
    }
    for (const InitializerReport& tensor : tensors_) {
      if (!tensor.tied_to.empty()) tied_.insert(tensor.tied_to);
      if (IsWeight(tensor)) modules_.insert(ModuleOf(tensor));
    }
  }

  std::vector<Adapter> Run() {
    const std::vector<size_t> chosen = Chosen();
    Freeze();
    std::vector<Adapter> adapters;
    for (size_t i : chosen) adapters.push_back(Add(i));
    return adapters;
  }

 private:
  static bool IsWeight(const InitializerReport& tensor) {
    const Role role = tensor.value->role;
    return tensor.tied_to.empty() && tensor.data.rank() >= 2 &&
           (role == Role::kParameter || role == Role::kFrozen) &&
           tensor.torch.fqn.ends_with(kWeightEnd);
  }

  static std::string ModuleOf(const InitializerReport& tensor) {
    const std::string& fqn = tensor.torch.fqn;
    return fqn.substr(0, fqn.size() - kWeightEnd.size());
  }

  // A whole path chooses that module alone.
  bool IsChosenBy(const std::string& target,
                  const InitializerReport& tensor) const {
    if (modules_.contains(target)) return ModuleOf(tensor) == target;
    return IsLoraTarget(target, ModuleOf(tensor)) ||
           IsLoraTarget(target, tensor.torch.fqn) ||
           IsLoraTarget(target, tensor.name);
  }

  // The products by the weight, behind Transposes and copies.
  LayerUses UsesOf(const InitializerReport& tensor) const {
    LayerUses uses;
    std::vector<std::pair<Value*, bool>> open = {{tensor.value, false}};
    while (!open.empty() && uses.obstacle.empty()) {
      const auto [value, turned] = open.back();
      open.pop_back();
      const bool inside =
          captured_.contains(value) || IsReturned(graph_, value);
      if (inside) uses.obstacle = "is read outside of linear layers";
      for (Node* node : value->uses) {
        if (node->Is("Identity")) {
          open.emplace_back(node->out(0), turned);
        } else if (node->Is("Transpose") && tensor.data.rank() == 2) {
          const bool swaps = node->Ints("perm", {1, 0}).front() == 1;
          open.emplace_back(node->out(0), turned != swaps);
        } else if (IsLayer(*node, value) && tensor.data.rank() == 2) {
          const bool flag = node->Is("Gemm") && node->Int("transB", 0) != 0;
          uses.products.push_back({node, turned != flag});
        } else {
          uses.obstacle = Concat("is read by ", node->Where());
        }
      }
    }
    if (uses.obstacle.empty()) CheckProducts(tensor, &uses);
    return uses;
  }

  // x · weight, and nothing but a bias.
  static bool IsLayer(const Node& node, const Value* weight) {
    if (node.in(1) != weight || node.in(0) == weight) return false;
    return node.Is("MatMul") ||
           (node.Is("Gemm") && node.Int("transA", 0) == 0 &&
            node.Float("alpha", 1) == 1 && node.in(2) != weight);
  }

  void CheckProducts(const InitializerReport& tensor, LayerUses* uses) const {
    const auto& products = uses->products;
    if (products.empty()) {
      uses->obstacle = "is read by nothing";
      return;
    }
    const bool mixed = std::ranges::any_of(products, [&](const LayerUse& use) {
      return use.out_first != products[0].out_first;
    });
    if (mixed) {
      uses->obstacle = "is multiplied as it is and transposed";
    } else if (tied_.contains(tensor.name)) {
      uses->obstacle = "belongs to several modules";
    }
  }

  // Positions of the chosen layers among the tensors.
  std::vector<size_t> Chosen() {
    std::set<size_t> chosen;
    for (const std::string& target : spec_.targets) {
      bool any = false;
      for (size_t i = 0; i < tensors_.size(); ++i) {
        const InitializerReport& tensor = tensors_[i];
        if (!IsWeight(tensor) || !IsChosenBy(target, tensor)) continue;
        const std::string obstacle = UsesOf(tensor).obstacle;
        Check(obstacle.empty(), "[", graph_.file, "] `lora` target ", target,
              " chooses ", tensor.torch.fqn, ", which ", obstacle,
              ": adapters are for linear layers alone");
        Check(tensor.evidence != Evidence::kFlag ||
                  tensor.value->role != Role::kParameter,
              "[", graph_.file, "] `train` names ", tensor.torch.fqn,
              ", which has an adapter: expected the one or the other");
        chosen.insert(i);
        any = true;
      }
      if (!any) RefuseTarget(target);
    }
    return {chosen.begin(), chosen.end()};
  }

  [[noreturn]] void RefuseTarget(const std::string& target) const {
    std::vector<std::string> layers;
    for (const InitializerReport& tensor : tensors_) {
      if (IsWeight(tensor) && UsesOf(tensor).obstacle.empty()) {
        layers.push_back(ModuleOf(tensor));
      }
    }
    Fail("[", graph_.file, "] `lora` target ", target,
         " matches no linear layer; the model has ", layers.size(),
         layers.empty() ? "" : ": ", Joined(layers));
  }

  void Freeze() {
    for (InitializerReport& tensor : tensors_) {
      if (tensor.value->role != Role::kParameter ||
          tensor.evidence == Evidence::kFlag || !tensor.tied_to.empty()) {
        continue;
      }
      tensor.value->role = Role::kFrozen;
      tensor.noun = "frozen parameter";
      tensor.reason = "frozen: adapters are trained in its place";
    }
  }

  Adapter Add(size_t at) {
    // A copy: reports of the adapters follow.
    const InitializerReport layer = tensors_[at];
    const LayerUses uses = UsesOf(layer);
    const bool out_first = uses.products[0].out_first;
    const std::string module = ModuleOf(layer);
    const Shape& shape = layer.data.shape();
    const int64_t in = shape[out_first ? 1 : 0], out = shape[out_first ? 0 : 1];
    Value* a = Parameter(module, "lora_A", {spec_.rank, in}, *layer.value);
    Value* b = Parameter(module, "lora_B", {out, spec_.rank}, *layer.value);
    for (const LayerUse& use : uses.products) Insert(*use.node, module, a, b);
    return {module,  layer.name, a->name,
            b->name, out_first,  out_first == layer.torch.transposed};
  }

  Value* Parameter(const std::string& module, const char* part,
                   const Shape& shape, const Value& weight) {
    const std::string name = Concat(module, ".", part, kWeightEnd);
    Check(!graph_.Find(name), "[", graph_.file, "] `lora` would add ", name,
          ", but the model has a value of that name");
    const Tensor zeros = Tensor::Zeros(weight.dtype, shape);
    Value* value = graph_.AddInitializer(name, zeros);
    value->role = Role::kParameter;
    InitializerReport report{name, value, zeros};
    report.reason = "trained: an adapter of " + weight.name;
    report.evidence = Evidence::kLora;
    report.torch = {name};
    tensors_.push_back(std::move(report));
    return value;
  }

  // The node whose result is the layer's: the Add of a bias, or the product.
  Node* LastOf(Node& product) const {
    const Value* y = product.out(0);
    const bool inner = product.Is("MatMul") && y->uses.size() == 1 &&
                       !IsReturned(graph_, y) && !captured_.contains(y);
    if (!inner || !y->uses[0]->Is("Add")) return &product;
    Node* add = y->uses[0];
    const Value* bias = add->in(0) == y ? add->in(1) : add->in(0);
    const bool vector = bias->is_initializer() && bias->data.rank() == 1;
    return vector ? add : &product;
  }

  void Insert(Node& product, const std::string& module, Value* a, Value* b) {
    Node* last = LastOf(product);
    before_ = graph_.NodeBehind(*last);
    Value* x = product.in(0);
    Value* y = last->out(0);
    if (spec_.dropout > 0) x = Dropped(x, module);
    const DType dtype = y->dtype;
    Value* h = Product(x, a, module + ".lora_A", dtype);
    const Tensor factor = ConvertTo(
        Tensor::Scalar(static_cast<float>(spec_.scaling())), a->dtype);
    Value* scaling = graph_.AddInitializer(
        graph_.FreshName(module + ".lora_scaling"), factor);
    h = Result("Mul", {h, scaling}, module + ".lora_B", dtype);
    Value* delta = Product(h, b, module + ".lora_B", dtype);
    Value* sum = Result("Add", {y, delta}, module + ".lora", dtype);
    // Readers of the layer's result, and the name, go to the sum.
    Node* node = sum->producer;
    sum->shape = y->shape;
    graph_.MoveOutput(y, node, 0);
    graph_.SetInput(node, 0, sum);
  }

  // x · Transpose(matrix).
  Value* Product(Value* x, Value* matrix, const std::string& module,
                 DType dtype) {
    Value* turned = Result("Transpose", {matrix}, module, matrix->dtype,
                           {{"perm", std::vector<int64_t>{1, 0}}});
    return Result("MatMul", {x, turned}, module, dtype);
  }

  Value* Dropped(Value* x, const std::string& module) {
    Value* ratio = graph_.AddInitializer(
        graph_.FreshName(module + ".lora_dropout.ratio"),
        Tensor::Scalar(static_cast<float>(spec_.dropout)));
    Value* training = graph_.AddInitializer(
        graph_.FreshName(module + ".lora_dropout.training"),
        Tensor::Scalar(true));
    return Result("Dropout", {x, ratio, training}, module + ".lora_dropout",
                  x->dtype);
  }

  // A node with one result, in that module.
  Value* Result(const std::string& op, const std::vector<Value*>& inputs,
                const std::string& module, DType dtype,
                Attributes attributes = {}) {
    const std::string path = Concat(module, ".", op);
    Node* node = graph_.AddNode(op, inputs, {graph_.FreshName(path)},
                                std::move(attributes), "", before_);
    node->name = Concat("/", module, "/", node->out(0)->name);
    node->out(0)->dtype = dtype;
    return node->out(0);
  }

  Graph& graph_;
  const LoraSpec& spec_;
  std::vector<InitializerReport>& tensors_;
  std::unordered_set<const Value*> captured_;  // by bodies of nodes
  std::set<std::string> tied_;     // tensors with which a copy became one
  std::set<std::string> modules_;  // with weights
  Node* before_ = nullptr;         // where nodes are inserted
};

}  // namespace

std::vector<Adapter> AddAdapters(Graph& graph, const LoraSpec& spec,
                                 std::vector<InitializerReport>* tensors) {
  return AdapterPass(graph, spec, tensors).Run();
}

}  // namespace onnx_fp8
