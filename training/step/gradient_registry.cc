// SPDX-License-Identifier: Apache-2.0
#include "training/step/gradient_registry.h"

#include "base/check.h"
#include "graph/op_facts.h"

namespace onnx_fp8 {

void RegisterAll(GradientRegistry& r);  // cmake/registers.cmake writes it

void NoGradient(GradientContext&) {}

void GradientRegistry::Add(std::string_view op, GradientRule rule,
                           std::string_view domain, size_t outputs) {
  Check(FindFacts(domain, op), "gradient of ", op, ", an op without facts");
  bool added = rules_
                   .emplace(std::pair(std::string(domain), std::string(op)),
                            Row{rule, outputs})
                   .second;
  Check(added, "gradient of ", op, " is registered twice");
}

void GradientRegistry::AddZero(std::string_view op, std::string_view domain) {
  Add(op, NoGradient, domain);
}

GradientRule GradientRegistry::Find(std::string_view domain,
                                    std::string_view op) const {
  auto it = rules_.find(std::pair(std::string(domain), std::string(op)));
  return it == rules_.end() ? nullptr : it->second.rule;
}

bool GradientRegistry::Handles(std::string_view domain, std::string_view op,
                               size_t i) const {
  auto it = rules_.find(std::pair(std::string(domain), std::string(op)));
  return it != rules_.end() && i < it->second.outputs;
}

const GradientRegistry& Gradients() {
  static const GradientRegistry registry = [] {
    GradientRegistry r;
    RegisterAll(r);
    return r;
  }();
  return registry;
}

}  // namespace onnx_fp8
