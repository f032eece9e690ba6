// SPDX-License-Identifier: Apache-2.0
#include "providers/kernel.h"

#include "base/check.h"
#include "graph/op_facts.h"

namespace onnx_fp8 {

Tensor& KernelContext::Out(size_t i, DType dtype, const Shape& shape) {
  Tensor& out = outputs_[i];
  if (!out.defined()) out = Tensor::Allocate(dtype, shape);
  if (out.shape() != shape || out.dtype() != dtype) {
    Fail("[", Where(), "] expected output ", i, " of shape ",
         ToString(out.shape()), ", got ", ToString(shape));
  }
  return out;
}

void* KernelContext::Workspace(size_t bytes) const {
  size_t planned = workspace_.defined() ? workspace_.bytes() : 0;
  Check(bytes <= planned, "[", Where(), "] expected a workspace of ", bytes,
        " bytes, got ", planned, " in the plan");
  return const_cast<void*>(workspace_.raw());
}

void KernelRegistry::Add(std::string_view op, Kernel kernel,
                         KernelTraits traits, std::string_view domain) {
  const OpFacts* facts = FindFacts(domain, op);
  if (facts && traits.host_inputs.empty() && !traits.view) {
    traits.host_inputs = ListOf(facts->host);
  }
  bool added = entries_
                   .emplace(std::pair(std::string(domain), std::string(op)),
                            KernelEntry{kernel, std::move(traits)})
                   .second;
  Check(added, "kernel ", op, " is registered twice");
}

const KernelEntry* KernelRegistry::Find(std::string_view domain,
                                        std::string_view op) const {
  auto it = entries_.find(std::pair(std::string(domain), std::string(op)));
  return it == entries_.end() ? nullptr : &it->second;
}

void KernelRegistry::RequireFacts() const {
  for (const auto& [key, entry] : entries_) {
    Check(FindFacts(key.first, key.second), "kernel ", key.second,
          " belongs to an op without facts");
  }
}

std::vector<std::string> KernelRegistry::Names() const {
  std::vector<std::string> names;
  for (const auto& [key, entry] : entries_) {
    names.push_back(key.first.empty() ? key.second
                                      : key.first + "." + key.second);
  }
  return names;
}

}  // namespace onnx_fp8
