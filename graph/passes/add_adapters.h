// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/trained_parameters.h"
#include "onnx_fp8/lora_spec.h"

namespace onnx_fp8 {

// A low-rank adapter beside the linear layer of a module.
struct Adapter {
  std::string module;   // "model.layers.0.self_attn.q_proj"
  std::string weight;   // the initializer of the layer
  std::string a, b;     // initializers (r, in) and (out, r)
  bool out_first;       // the initializer `weight` is (out, in)
  bool fan_in_fan_out;  // PyTorch's matrix is (in, out): transformers' Conv1D
};

// Adds an adapter to each linear layer that a target chooses: a MatMul or Gemm
// by a weight, as it is or through Transposes. A target is compared with the
// module, the weight's PyTorch name and its initializer; the whole path of a
// module chooses it alone:
//
//   y = MatMul(x, Transpose(W)) [+ bias]
//   → y + MatMul(MatMul(Dropout(x), Transpose(A)) · scaling, Transpose(B))
//
// The scaling multiplies the r columns between the products, which is the same
// as multiplying the result. The parameters MODULE.lora_A.weight and
// MODULE.lora_B.weight are zeros. All other parameters become frozen, except
// the ones that a flag trains, and `tensors` says so. The nodes of an adapter
// belong to the modules MODULE.lora_A and MODULE.lora_B.
//
// Errors: a target that chooses no linear layer, naming the layers; a target
// that chooses the weight of another op (an embedding, a convolution), a weight
// that several modules share, or one that is trained too; a name that is taken.
// Vectors, as the scales of norms, are no layers: targets pass over them.
// REQUIRES: roles set; `tensors` is MarkParameters' result.
std::vector<Adapter> AddAdapters(Graph& graph, const LoraSpec& spec,
                                 std::vector<InitializerReport>* tensors);

}  // namespace onnx_fp8
