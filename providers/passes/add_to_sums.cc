// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/add_to_sums.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "providers/ops/scaled_products.h"

namespace onnx_fp8 {
namespace {

// The form of a product that adds an operand.
struct AddingForm {
  std::string domain, op;
  size_t addend;  // operand
};

// Its op is empty if the node is no product, or adds something already.
AddingForm FormOf(const Node& product) {
  if (product.Is("Gemm") && !product.in(2)) return {"", "Gemm", 2};
  for (const char* op :
       {"ScaledMatMul", "ScaledMatMulPadded", "ScaledMatMulBlock"}) {
    if (product.IsOurs(op)) return {kDomain, std::string(op) + "Add", 4};
  }
  return {};
}

// The number of products in each of the product's sums; 0: it is not known.
int64_t DepthOf(const Node& product) {
  Shape a = CodeMatrix(*product.in(0));
  if (a.empty()) return 0;
  return product.Int("transA", 0) != 0 ? a[0] : a[1];
}

bool AddsInPlace(const KernelRegistry& kernels, const AddingForm& form,
                 const Node& product) {
  const KernelEntry* entry = kernels.Find(form.domain, form.op);
  return entry && DepthOf(product) <= entry->traits.adds_depth &&
         std::ranges::count(entry->traits.in_place,
                            std::pair(static_cast<int>(form.addend), 0)) > 0;
}

bool IsFloat(const Value& value) {
  return value.dtype == DType::kFloat && value.narrow == DType::kUndefined;
}

class Adder {
 public:
  Adder(Graph& graph, const KernelRegistry& kernels)
      : graph_(graph), kernels_(kernels) {}

  void Run() {
    std::vector<Node*> adds;
    for (Node& node : graph_.nodes()) {
      position_.emplace(&node, position_.size());
      if (node.Is("Add")) adds.push_back(&node);
    }
    for (Node* add : adds) {
      if (!JoinProduct(*add, 1)) JoinProduct(*add, 0);
    }
  }

 private:
  // Lets the product that is operand i add the other operand.
  bool JoinProduct(Node& add, size_t i) {
    Value *product = add.in(i), *sum = add.in(1 - i), *y = add.out(0);
    Node* maker = product->producer;
    if (!maker || !IsOnlyAdded(*product) || !IsThereBefore(*sum, *maker) ||
        !IsFloat(*product) || !IsFloat(*sum) || !IsFloat(*y) ||
        product->shape != sum->shape) {
      return false;
    }
    AddingForm form = FormOf(*maker);
    if (form.op.empty() || !AddsInPlace(kernels_, form, *maker)) return false;
    maker->op = form.op;
    graph_.SetInput(maker, form.addend, sum);
    if (form.op == "Gemm") maker->attributes["beta"] = 1.0f;
    graph_.SetInput(&add, i, sum);  // so that nothing reads the product
    graph_.MoveOutput(y, maker, 0);
    graph_.RemoveNode(&add);
    return true;
  }

  bool IsOnlyAdded(const Value& product) const {
    return product.uses.size() == 1 && !IsReturned(graph_, &product);
  }

  // A product that had to wait for a later operand would keep its own operands
  // alive.
  bool IsThereBefore(const Value& sum, const Node& product) const {
    if (!sum.producer) return sum.role == Role::kSum;
    return position_.at(sum.producer) < position_.at(&product);
  }

  Graph& graph_;
  const KernelRegistry& kernels_;
  std::unordered_map<const Node*, size_t> position_;
};

}  // namespace

void AddToSums(Graph& graph, const KernelRegistry& kernels) {
  Adder(graph, kernels).Run();
}

}  // namespace onnx_fp8
