// SPDX-License-Identifier: Apache-2.0
//
// Attention as a graph of cuDNN's frontend.
#include "providers/cuda/attention/cudnn_plan.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "providers/cuda/library/cudnn_graph.h"

namespace onnx_fp8::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorRef = std::shared_ptr<Tensor_attributes>;

// Numbers of the tensors.
enum Uid : int64_t { kQ = 1, kK, kV, kY, kLse, kDy, kDq, kDk, kDv };

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
  attributes.set_deterministic_algorithm(p.deterministic);
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

struct CudnnPlan::Graph : CudnnGraph {
  // `gpu`: as CudnnGraph's.
  Graph(const LibraryProblem& p, const std::string& gpu)
      : CudnnGraph(fe::DataType_t::BFLOAT16, gpu) {
    if (p.backward) {
      AddBackward(nodes(), p);
    } else {
      AddForward(nodes(), p);
    }
  }
};

CudnnPlan::CudnnPlan(const LibraryProblem& problem, cudnnContext* handle)
    : graph_(std::make_unique<Graph>(problem, "")) {
  graph_->Compile(handle, {});
  workspace_ = graph_->Workspace();
}

CudnnPlan::CudnnPlan(const LibraryProblem& problem, const std::string& gpu)
    : graph_(std::make_unique<Graph>(problem, gpu)) {
  graph_->Compile(nullptr, {});
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
