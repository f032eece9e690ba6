// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/moved_bytes.h"

#include <algorithm>
#include <initializer_list>

#include "graph/node_cost.h"
#include "providers/plan/plan_workspace.h"

namespace onnx_fp8 {
namespace {

// How much of a row a thread block on a GPU can hold.
constexpr int64_t kHeldElements = 16384;   // in registers
constexpr double kHeldBytes = 112 * 1024;  // in shared memory

bool IsOneOf(const Node& node, std::initializer_list<const char*> ops) {
  return std::ranges::any_of(ops,
                             [&](const char* op) { return node.IsOurs(op); });
}

// Codes need an amax that is known only when all of x, or a whole column of it,
// has been read.
bool MeasuresFirst(const Node& node) {
  if (IsOneOf(node, {"QuantizeTensor", "QuantizeTensorTranspose"})) return true;
  if (node.IsOurs("QuantizeBlock")) {
    return node.Int("block_rows", 1) == 0;
  }
  return IsOneOf(node, {"QuantizeColumns", "QuantizeBlockTranspose"}) &&
         node.Int("block_columns", 1) == 0;
}

// Bytes of x that are read for the second time.
double ReadAgain(const Node& node, bool on_gpu) {
  const Value& x = *node.in(0);
  if (MeasuresFirst(node)) return static_cast<double>(BytesOf(x));
  if (!on_gpu) return 0;  // a cache holds a row
  if (node.op == "Softmax" && x.shape->back() > kHeldElements) {
    return static_cast<double>(BytesOf(x));
  }
  if (node.IsOurs("CrossEntropyWithGrad")) {
    const Value& scores = *node.in(1);
    auto all = static_cast<double>(BytesOf(scores));
    double rows = static_cast<double>((*scores.shape)[0]);
    return std::max(0.0, all - rows * kHeldBytes);
  }
  return 0;
}

}  // namespace

double MovedBytes(const Node& node, ExecutionProvider& provider) {
  double bytes = CostOf(node).bytes;
  if (node.op == "Gather") {
    // The rows that are looked up, not the table.
    bytes += static_cast<double>(BytesOf(*node.out(0))) -
             static_cast<double>(BytesOf(*node.in(0)));
  }
  bytes += ReadAgain(node, provider.device() != Device::kHost);
  const KernelEntry& entry = *provider.Kernels().Find(node.domain, node.op);
  if (auto own = WorkspaceFor(node, entry.traits, provider.queue())) {
    bytes += 2 * static_cast<double>(BytesOf(*own));
  }
  return bytes;
}

}  // namespace onnx_fp8
