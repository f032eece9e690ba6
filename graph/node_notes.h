// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// The entry of the metadata with the name of the forward's node of which a node
// of the backward computes the gradient.
inline constexpr char kForwardName[] = "onnx_fp8.forward";

// "MatMul", "onnx_fp8.ScaledMatMul".
std::string OpName(const Node& node);

// A note that passes leave on nodes ("role", "fqn", "operand"): a text
// attribute or an entry of the metadata; "" if there is none.
std::string NodeNote(const Node& node, const std::string& key);

// The entries of `pkg.torch.onnx.name_scopes`, from the model to the op; none
// if the exporter left none.
std::vector<std::string> NameScopes(const Node& node);

// The module path that an exporter left on the node: the innermost entry of
// `pkg.torch.onnx.name_scopes`, or the folder part of a path-like node name
// ("/blocks.0/attn/MatMul" → "blocks.0.attn"); "" if there is none.
std::string ModulePath(const Node& node);

}  // namespace onnx_fp8
