// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/custom_ops.h"

#include "graph/onnx/import_ort.h"
#include "graph/op_facts.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/ort/max_pool_grad.h"
#include "providers/ort/single_op.h"
#include "providers/ort/training_op.h"

namespace onnx_fp8 {
namespace {

// The last version with a training build, which has the operators of training
// itself: a session of that version would no longer see any other of their
// domain.
constexpr uint32_t kLastTraining = 19;

// The ops of one domain. The runtime keeps pointers to the tables as long as a
// session lives, so that they live as long as the process.
struct DomainOps {
  const char* domain;
  std::vector<const OrtCustomOp*> ops;
};

// All of ours that have a kernel on the CPU and need no other ranks.
std::vector<const OrtCustomOp*> OwnOps() {
  std::vector<const OrtCustomOp*> ops;
  for (const std::string& name : OpNames()) {
    const OpDefinition& op = *FindOp(name);
    bool alone = op.facts.kind != OpKind::kCollective;
    if (!alone || !CpuKernels().Find(kDomain, name)) continue;
    for (std::vector<DType>& results : ResultTypes(op)) {
      ops.push_back(new SingleOp(op, std::move(results)));
    }
  }
  return ops;
}

// Operators of onnxruntime-training that newer runtimes lack.
std::vector<const OrtCustomOp*> TrainingOps() {
  std::vector<const OrtCustomOp*> ops = {new AccumulatorOp};
  for (const TrainingOp::Form& form : TrainingForms()) {
    ops.push_back(new TrainingOp(form));
  }
  return ops;
}

const std::vector<const DomainOps*>& AllDomains() {
  static const DomainOps* own = new DomainOps{kDomain, OwnOps()};
  static const DomainOps* training = new DomainOps{kOrtDomain, TrainingOps()};
  // ONNX's own domain: a session then knows one operator of it more.
  static const DomainOps* onnx = new DomainOps{"", {new MaxPoolGradOp}};
  static const std::vector<const DomainOps*> domains = {own, training, onnx};
  return domains;
}

}  // namespace

// A session keeps a pointer to each domain.
void AddCustomOps(OrtSessionOptions* session) {
  static const auto* made = [] {
    auto* list = new std::vector<OrtCustomOpDomain*>;
    for (const DomainOps* ours : AllDomains()) {
      bool theirs = std::string_view(ours->domain) != kDomain;
      if (theirs && RuntimeVersion() <= kLastTraining) continue;
      OrtCustomOpDomain* domain = nullptr;
      Must(Ort().CreateCustomOpDomain(ours->domain, &domain));
      for (const OrtCustomOp* op : ours->ops) {
        Must(Ort().CustomOpDomain_Add(domain, op));
      }
      list->push_back(domain);
    }
    return list;
  }();
  for (OrtCustomOpDomain* domain : *made) {
    Must(Ort().AddCustomOpDomain(session, domain));
  }
}

}  // namespace onnx_fp8
