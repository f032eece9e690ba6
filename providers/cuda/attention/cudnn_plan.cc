// SPDX-License-Identifier: Apache-2.0
//
// Attention as a graph of cuDNN's frontend. Its headers take half a minute to
// compile, so no other file includes them.
#include "providers/cuda/attention/cudnn_plan.h"

#include <cudnn_frontend.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"

namespace onnx_fp8::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorRef = std::shared_ptr<Tensor_attributes>;

// Numbers of the tensors.
enum Uid : int64_t { kQ = 1, kK, kV, kY, kLse, kDy, kDq, kDk, kDv };

void CheckFrontend(fe::error_t error) {
  Check(error.is_good(), "cuDNN: ", error.get_message());
}

// cuDNN's dimensions are (batch, head, row, column).
void Describe(Tensor_attributes& x, Uid uid, std::vector<int64_t> sizes,
              const LibraryStrides& strides) {
  x.set_uid(uid).set_dim(std::move(sizes));
  x.set_stride({strides.batch, strides.head, strides.row, 1});
}

std::vector<int64_t> QuerySizes(const LibraryProblem& p) {
  return {p.b, p.heads, p.t, p.d};
}
std::vector<int64_t> KeySizes(const LibraryProblem& p) {
  return {p.b, p.groups, p.s, p.d};
}

void DescribeLse(Tensor_attributes& x, const LibraryProblem& p) {
  LibraryStrides packed = {.batch = p.heads * p.t, .head = p.t, .row = 1};
  Describe(x, kLse, {p.b, p.heads, p.t, 1}, packed);
  x.set_data_type(fe::DataType_t::FLOAT);
}

TensorRef Operand(fe::graph::Graph& graph, Uid uid, std::vector<int64_t> sizes,
                  const LibraryStrides& strides) {
  Tensor_attributes x;
  Describe(x, uid, std::move(sizes), strides);
  return graph.tensor(x);
}

void SetResult(const TensorRef& x, Uid uid, std::vector<int64_t> sizes,
               const LibraryStrides& strides) {
  Describe(*x, uid, std::move(sizes), strides);
  x->set_output(true);
}

// What both passes have in common.
template <typename Attributes>
Attributes AttributesOf(const LibraryProblem& p) {
  Attributes a;
  a.set_name("attention").set_attn_scale(p.scale);
  if (p.causal) {
    a.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
    a.set_diagonal_band_right_bound(0);
  }
  return a;
}

void AddForward(fe::graph::Graph& graph, const LibraryProblem& p) {
  auto attributes = AttributesOf<fe::graph::SDPA_attributes>(p);
  attributes.set_generate_stats(p.keeps_lse);
  auto [y, lse] = graph.sdpa(Operand(graph, kQ, QuerySizes(p), p.q),
                             Operand(graph, kK, KeySizes(p), p.k),
                             Operand(graph, kV, KeySizes(p), p.v), attributes);
  SetResult(y, kY, QuerySizes(p), p.y);
  if (!p.keeps_lse) return;
  DescribeLse(*lse, p);
  lse->set_output(true);
}

void AddBackward(fe::graph::Graph& graph, const LibraryProblem& p) {
  auto attributes = AttributesOf<fe::graph::SDPA_backward_attributes>(p);
  attributes.set_deterministic_algorithm(true);
  Tensor_attributes lse;
  DescribeLse(lse, p);
  auto [dq, dk, dv] = graph.sdpa_backward(
      Operand(graph, kQ, QuerySizes(p), p.q),
      Operand(graph, kK, KeySizes(p), p.k),
      Operand(graph, kV, KeySizes(p), p.v),
      Operand(graph, kY, QuerySizes(p), p.y),
      Operand(graph, kDy, QuerySizes(p), p.y), graph.tensor(lse), attributes);
  SetResult(dq, kDq, QuerySizes(p), p.q);
  SetResult(dk, kDk, KeySizes(p), p.k);
  SetResult(dv, kDv, KeySizes(p), p.v);
}

}  // namespace

struct CudnnPlan::Graph {
  // `gpu`: as CudnnPlan's; "": the one that is here.
  Graph(const LibraryProblem& p, const std::string& gpu) {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (!gpu.empty()) {  // nodes copy what is known when they are added
      auto device = std::make_shared<fe::DeviceProperties>();
      CheckFrontend(device->deserialize({gpu.begin(), gpu.end()}));
      graph.set_device_properties(device).set_sm_version(90);
    }
    if (p.backward) {
      AddBackward(graph, p);
    } else {
      AddForward(graph, p);
    }
  }

  size_t Workspace() const {
    int64_t bytes = 0;
    CheckFrontend(graph.get_workspace_size(bytes));
    return static_cast<size_t>(bytes);
  }

  void Run(cudnnContext* handle, std::unordered_map<int64_t, void*> memory,
           void* workspace) const {
    CheckFrontend(graph.execute(handle, memory, workspace));
  }

  fe::graph::Graph graph;
};

CudnnPlan::CudnnPlan(const LibraryProblem& problem, cudnnContext* handle)
    : graph_(std::make_unique<Graph>(problem, "")) {
  CheckFrontend(graph_->graph.build(handle, {fe::HeurMode_t::A}));
  workspace_ = graph_->Workspace();
}

CudnnPlan::CudnnPlan(const LibraryProblem& problem, const std::string& gpu)
    : graph_(std::make_unique<Graph>(problem, gpu)) {
  CheckFrontend(graph_->graph.build({fe::HeurMode_t::A}));
  workspace_ = graph_->Workspace();
}

CudnnPlan::~CudnnPlan() = default;

void CudnnPlan::Run(cudnnContext* handle, const LibraryForward& m,
                    void* workspace) const {
  std::unordered_map<int64_t, void*> memory = {{kQ, const_cast<void*>(m.q)},
                                               {kK, const_cast<void*>(m.k)},
                                               {kV, const_cast<void*>(m.v)},
                                               {kY, m.y}};
  if (m.lse) memory.emplace(kLse, m.lse);
  graph_->Run(handle, std::move(memory), workspace);
}

void CudnnPlan::Run(cudnnContext* handle, const LibraryBackward& m,
                    void* workspace) const {
  graph_->Run(handle,
              {{kQ, const_cast<void*>(m.q)},
               {kK, const_cast<void*>(m.k)},
               {kV, const_cast<void*>(m.v)},
               {kY, const_cast<void*>(m.y)},
               {kLse, const_cast<float*>(m.lse)},
               {kDy, const_cast<void*>(m.dy)},
               {kDq, m.dq},
               {kDk, m.dk},
               {kDv, m.dv}},
              workspace);
}

}  // namespace onnx_fp8::cuda
