// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/pad_operands.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "providers/ops/scaled_products.h"

namespace onnx_fp8 {
namespace {

class Padder {
 public:
  Padder(Graph& graph, const KernelRegistry& kernels)
      : graph_(graph), kernels_(kernels) {}

  void Run() {
    for (Node& node : graph_.nodes()) {
      if (MayPad(node)) padding_.insert(&node);
    }
    while (std::erase_if(padding_, [&](const Node* quantizer) {
      return !std::ranges::all_of(
          quantizer->out(0)->uses,
          [&](const Node* product) { return NeedsNoCopy(*product); });
    })) {
    }
    for (Node& node : graph_.nodes()) {
      if (IsScaledMatMul(node) && ReadsPadded(node)) ReadPadded(node);
    }
    for (Node* quantizer : padding_) Pad(*quantizer);
  }

 private:
  static std::string PaddedOp(const Node& node) {
    if (node.IsOurs("ScaledMatMulBias")) return "ScaledMatMulPaddedBias";
    return node.op + "Padded";
  }

  bool MayPad(const Node& node) const {
    if (!node.IsOurs("QuantizeTensor") && !node.IsOurs("QuantizeWith")) {
      return false;
    }
    const Value* q = node.out(0);
    return q && kernels_.Find(kDomain, PaddedOp(node)) &&
           NeedsZeros(CodeMatrix(*q)) && !q->uses.empty() &&
           !IsReturned(graph_, q) &&
           std::ranges::all_of(q->uses, [](const Node* reader) {
             return IsScaledMatMul(*reader);
           });
  }

  bool IsPadded(const Value* codes) const {
    return codes->producer && padding_.contains(codes->producer);
  }

  bool ReadsPadded(const Node& product) const {
    return std::ranges::any_of(
        kCodeOperands, [&](size_t i) { return IsPadded(product.in(i)); });
  }

  bool NeedsNoCopy(const Node& product) const {
    return std::ranges::all_of(kCodeOperands, [&](size_t i) {
      if (IsPadded(product.in(i))) return true;
      Shape matrix = CodeMatrix(*product.in(i));
      return IsKMajor(product, i) && !matrix.empty() && !NeedsZeros(matrix);
    });
  }

  void ReadPadded(Node& product) {
    for (size_t i : kCodeOperands) {
      Value* codes = product.in(i);
      if (IsPadded(codes) && !IsKMajor(product, i)) {
        graph_.SetInput(&product, i, Transposed(codes));
      }
    }
    product.op = PaddedOp(product);
    product.attributes.erase("transA");
    product.attributes.erase("transB");
    product.attributes["shape"] = *product.out(0)->shape;
  }

  Value* Transposed(Value* codes) {
    Node* quantizer = codes->producer;
    if (Value* made = quantizer->out(kTransposedCodes)) return made;
    Value* made =
        graph_.AddOutput(quantizer, kTransposedCodes,
                         graph_.FreshName(codes->name + ".transposed"));
    made->dtype = codes->dtype;
    return made;
  }

  void Pad(Node& quantizer) {
    quantizer.op = PaddedOp(quantizer);
    Value* q = quantizer.out(0);
    Shape matrix = CodeMatrix(*q);
    q->shape = Shape{PaddedSize(matrix[0]), PaddedSize(matrix[1])};
    if (Value* transposed = quantizer.out(kTransposedCodes)) {
      transposed->shape = Shape{(*q->shape)[1], (*q->shape)[0]};
    }
  }

  Graph& graph_;
  const KernelRegistry& kernels_;
  std::unordered_set<Node*> padding_;  // quantizers that will add zeros
};

}  // namespace

void PadOperands(Graph& graph, const KernelRegistry& kernels) {
  Padder(graph, kernels).Run();
}

}  // namespace onnx_fp8
