// SPDX-License-Identifier: Apache-2.0
#include "providers/add_to_sums.h"

#include <algorithm>
#include <string>

#include "graph/views.h"

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

bool AddsInPlace(const KernelRegistry& kernels, const AddingForm& form) {
  const KernelEntry* entry = kernels.Find(form.domain, form.op);
  return entry &&
         std::ranges::count(entry->traits.in_place,
                            std::pair(static_cast<int>(form.addend), 0)) > 0;
}

// Whether `gradient` is a float matrix that only the Add reads.
bool IsOnlyAdded(const Graph& graph, const Value& gradient, const Value& sum) {
  return gradient.uses.size() == 1 && !IsReturned(graph, &gradient) &&
         gradient.dtype == DType::kFloat && sum.dtype == DType::kFloat &&
         gradient.narrow == DType::kUndefined &&
         sum.narrow == DType::kUndefined && gradient.shape == sum.shape;
}

}  // namespace

void AddToSums(Graph& graph, const KernelRegistry& kernels) {
  for (const StateBinding& binding : graph.state) {
    Node* add = binding.next->producer;
    Value* sum = binding.state;
    if (sum->role != Role::kSum || !add || !add->Is("Add") ||
        add->in(0) != sum) {
      continue;
    }
    Value* gradient = add->in(1);
    Node* product = gradient->producer;
    if (!product || !IsOnlyAdded(graph, *gradient, *sum)) continue;
    AddingForm form = FormOf(*product);
    if (form.op.empty() || !AddsInPlace(kernels, form)) continue;
    product->op = form.op;
    graph.SetInput(product, form.addend, sum);
    if (form.op == "Gemm") product->attributes["beta"] = 1.0f;
    graph.ReplaceUses(add->out(0), gradient);
    graph.RemoveNode(add);
  }
}

}  // namespace onnx_fp8
