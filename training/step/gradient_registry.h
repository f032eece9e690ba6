// SPDX-License-Identifier: Apache-2.0
//
// Gradient rules: a table, one row per op, which a function of the op's family
// adds (training/gradients/<family>.cc). A rule emits the nodes that compute
// the gradients of one node's inputs. autodiff.cc sums over fan-out and over
// broadcast axes for all ops; no rule does that.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "graph/evaluator.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// The input of a rule. All shapes are concrete.
class GradientContext {
 public:
  GradientContext(Builder& builder, Node& node, std::vector<Value*> dy,
                  std::vector<bool> needs, const Evaluator& evaluator)
      : b(builder),
        node(node),
        evaluator(evaluator),
        dy_(std::move(dy)),
        needs_(std::move(needs)),
        dx_(node.inputs().size()) {}

  Builder& b;
  Node& node;
  const Evaluator& evaluator;  // for rules that compute constants

  Value* In(size_t i) const { return node.in(i); }
  Value* Out(size_t i) const { return node.out(i); }
  // Gradient of the loss by output i; null if there is none.
  Value* Dy(size_t i = 0) const { return i < dy_.size() ? dy_[i] : nullptr; }
  // True if the gradient of input i is wanted: it is present, of a float type
  // and depends on something trained.
  bool Needs(size_t i) const { return i < needs_.size() && needs_[i]; }
  // Sets the gradient of input i. It may have the broadcast shape of the
  // output: the engine sums it down to the input's shape. Ignored for an input
  // that the node omits.
  void Set(size_t i, Value* dx) {
    if (i < dx_.size()) dx_[i] = dx;
  }
  Value* Dx(size_t i) const { return dx_[i]; }

 private:
  std::vector<Value*> dy_;
  std::vector<bool> needs_;
  std::vector<Value*> dx_;
};

// Errors: uses of the op that the rule does not cover, as Error that begins
// with "[node.Where()]".
using GradientRule = void (*)(GradientContext&);

// The rule of ops that AddZero added: sets nothing.
void NoGradient(GradientContext&);

class GradientRegistry {
 public:
  // `outputs`: how many outputs, from the first, have gradients that the rule
  // handles. If it is 1, output 0 has a gradient; else any of them may have
  // none. Errors: the op has a rule, or has no facts (graph/op_facts.h).
  void Add(std::string_view op, GradientRule rule, std::string_view domain = "",
           size_t outputs = 1);
  // Adds an op whose output does not depend smoothly on its inputs (Equal,
  // Floor, Shape, …). No gradient flows, which is correct.
  void AddZero(std::string_view op, std::string_view domain = "");
  // null if there is no rule; NoGradient for AddZero's ops.
  GradientRule Find(std::string_view domain, std::string_view op) const;
  // Whether the op has a rule that handles the gradient of output i.
  bool Handles(std::string_view domain, std::string_view op, size_t i) const;

 private:
  struct Row {
    GradientRule rule;
    size_t outputs;
  };
  std::map<std::pair<std::string, std::string>, Row, std::less<>> rules_;
};

// For Add: the rule handles all outputs, however many they are.
inline constexpr size_t kAllOutputs = static_cast<size_t>(-1);

// All rules; lives as long as the process.
const GradientRegistry& Gradients();

}  // namespace onnx_fp8
