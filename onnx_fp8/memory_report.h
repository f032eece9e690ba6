// SPDX-License-Identifier: Apache-2.0
//
// The values that are live at the step where a plan's arena is fullest.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace onnx_fp8 {

// If several kinds fit, the first counts.
enum class MemoryKind {
  // Gradients of trained parameters, and their sums over micro-batches.
  kParameterGradient,
  kFp8Copy,    // anything in an 8-bit float
  kParameter,  // trained or frozen
  kFp8State,   // scales, amaxes and their histories
  // Other state: moments, counters, running statistics.
  kOptimizerState,
  kInput,     // of the graph: the batch, the learning rate
  kConstant,  // the same in every step
  kOutput,    // of the graph
  // Values that depend on the gradient of the loss by itself.
  kActivationGradient,
  // Values of the forward from which the backward computes such gradients.
  kSavedActivation,
  kTemporary,
  kWorkspace,  // of a kernel on a device, while its node runs
};

inline constexpr int kMemoryKinds = 12;

// "saved activations".
const char* Name(MemoryKind kind);

struct LiveValue {
  MemoryKind kind = MemoryKind::kTemporary;
  std::string name, type;  // "float[2048,256]"
  size_t bytes = 0;
  // The node that makes it; empty for a value that exists before the first
  // node.
  std::string node, op;
  // A matrix product's role (forward, dgrad or wgrad), or a copied operand's.
  std::string role;
  std::string fqn;          // of the weight it belongs to, if a node tells
  std::string last_reader;  // "" if nobody reads it
};

struct MemoryReport {
  std::string node;             // the node that runs at the peak; "" if none
                                // does
  int step = 0;                 // the number of that node, from 1
  int steps = 0;                // the number of all nodes
  std::vector<LiveValue> live;  // largest first
  size_t arena_bytes = 0;       // what the plan allocates
  size_t live_bytes = 0;        // of that, in use at the peak: all of `live` in
                                // the arena, in multiples of 64 bytes
  size_t in_arena_bytes = 0;    // the same in their own sizes
  // Gradients of parameters that are alive when the first parameter changes.
  // All are, because a skip and the factor of a clip depend on all gradients.
  size_t gradients_held_bytes = 0;

  size_t Total(MemoryKind kind) const {
    size_t total = 0;
    for (const LiveValue& value : live) {
      if (value.kind == kind) total += value.bytes;
    }
    return total;
  }
};

}  // namespace onnx_fp8
