// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/plan_workspace.h"

#include <string>
#include <vector>

#include "base/check.h"
#include "providers/plan/arena.h"

namespace onnx_fp8 {
namespace {

// Tensors of these types at an address that is none, but aligned as the plan
// aligns all of them: libraries ask for it, and refuse a null.
std::vector<Tensor> TypesOf(const std::vector<Value*>& values) {
  auto* nowhere = reinterpret_cast<void*>(kDeviceAlignment);
  std::vector<Tensor> types;
  for (const Value* value : values) {
    types.push_back(value ? Tensor::View(StoredAs(*value), *value->shape,
                                         nullptr, nowhere, Device::kProvider)
                          : Tensor());
  }
  return types;
}

}  // namespace

std::shared_ptr<const Value> WorkspaceFor(const Node& node,
                                          const KernelTraits& traits,
                                          void* queue) {
  if (!traits.workspace) return nullptr;
  std::vector<Tensor> inputs = TypesOf(node.inputs());
  for (size_t i : traits.host_inputs) {
    if (i >= inputs.size() || !node.in(i)) continue;
    if (!node.in(i)->is_constant()) return nullptr;  // the plan refuses it
    inputs[i] = node.in(i)->data;
  }
  std::vector<Tensor> outputs = TypesOf(node.outputs());
  KernelContext context(node, inputs, outputs);
  context.set_queue(queue);
  size_t bytes = 0;
  try {
    bytes = traits.workspace(context);
  } catch (const Error& error) {
    std::string text = error.what();
    if (text.find(node.Where()) != std::string::npos) throw;
    Fail("[", node.Where(), "] ", text);
  }
  if (bytes == 0) return nullptr;
  auto workspace = std::make_shared<Value>();
  workspace->name = Concat("workspace of ", node.Where());
  workspace->dtype = DType::kUInt8;
  workspace->shape = Shape{static_cast<int64_t>(bytes)};
  return workspace;
}

}  // namespace onnx_fp8
