// SPDX-License-Identifier: Apache-2.0
//
// Convolutions as a graph of cuDNN's frontend.
#include "providers/cuda/convolution/cudnn_plan.h"

#include "providers/cuda/library/cudnn_graph.h"

namespace onnx_fp8::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorRef = std::shared_ptr<Tensor_attributes>;

// Numbers of the tensors.
enum ConvolutionUid : int64_t { kInput = 1, kWeight, kOutput };

fe::DataType_t TypeOf(Storage storage) {
  return storage == Storage::kFloat      ? fe::DataType_t::FLOAT
         : storage == Storage::kBFloat16 ? fe::DataType_t::BFLOAT16
                                         : fe::DataType_t::HALF;
}

// Engines with these notes are not taken. Their results differ from run to run,
// or are less exact than sums of float. Tensor cores round floats to TF32.
CudnnGraph::Notes RefusedNotes(Storage storage) {
  using Note = fe::NumericalNote_t;
  CudnnGraph::Notes notes = {Note::NONDETERMINISTIC,
                             Note::DOWN_CONVERT_INPUTS,
                             Note::REDUCED_PRECISION_REDUCTION,
                             Note::FFT,
                             Note::WINOGRAD,
                             Note::WINOGRAD_TILE_4x4,
                             Note::WINOGRAD_TILE_6x6,
                             Note::WINOGRAD_TILE_13x13};
  if (storage == Storage::kFloat) notes.push_back(Note::TENSOR_CORE);
  return notes;
}

void Describe(Tensor_attributes& to, ConvolutionUid uid,
              const ConvolutionTensor& x) {
  to.set_uid(uid).set_dim(x.sizes).set_stride(x.strides);
}

TensorRef Operand(fe::graph::Graph& graph, ConvolutionUid uid,
                  const ConvolutionTensor& x) {
  Tensor_attributes described;
  Describe(described, uid, x);
  return graph.tensor(described);
}

void SetResult(const TensorRef& result, ConvolutionUid uid,
               const ConvolutionTensor& x) {
  Describe(*result, uid, x);
  result->set_output(true);
}

template <typename Attributes>
Attributes WindowOf(const ConvolutionProblem& p) {
  Attributes a;
  a.set_name("convolution");
  a.set_stride(p.stride).set_dilation(p.dilation);
  a.set_pre_padding(p.pad).set_post_padding(p.pad_end);
  return a;
}

void AddPass(fe::graph::Graph& graph, const ConvolutionProblem& p) {
  switch (p.pass) {
    case ConvolutionPass::kForward:
      return SetResult(
          graph.conv_fprop(Operand(graph, kInput, p.x),
                           Operand(graph, kWeight, p.weight),
                           WindowOf<fe::graph::Conv_fprop_attributes>(p)),
          kOutput, p.y);
    case ConvolutionPass::kInputGradient:
      return SetResult(
          graph.conv_dgrad(Operand(graph, kOutput, p.y),
                           Operand(graph, kWeight, p.weight),
                           WindowOf<fe::graph::Conv_dgrad_attributes>(p)),
          kInput, p.x);
    case ConvolutionPass::kWeightGradient:
      return SetResult(
          graph.conv_wgrad(Operand(graph, kOutput, p.y),
                           Operand(graph, kInput, p.x),
                           WindowOf<fe::graph::Conv_wgrad_attributes>(p)),
          kWeight, p.weight);
  }
}

}  // namespace

struct ConvolutionPlan::Graph : CudnnGraph {
  // `gpu`: as CudnnGraph's.
  Graph(const ConvolutionProblem& p, const std::string& gpu)
      : CudnnGraph(TypeOf(p.storage), gpu) {
    AddPass(nodes(), p);
  }
};

ConvolutionPlan::ConvolutionPlan(const ConvolutionProblem& problem,
                                 cudnnContext* handle)
    : graph_(std::make_unique<Graph>(problem, "")) {
  graph_->Compile(handle, RefusedNotes(problem.storage));
  workspace_ = graph_->Workspace();
}

ConvolutionPlan::ConvolutionPlan(const ConvolutionProblem& problem,
                                 const std::string& gpu)
    : graph_(std::make_unique<Graph>(problem, gpu)) {
  graph_->Compile(nullptr, RefusedNotes(problem.storage));
  workspace_ = graph_->Workspace();
}

ConvolutionPlan::~ConvolutionPlan() = default;

void ConvolutionPlan::Run(cudnnContext* handle, const ConvolutionMemory& memory,
                          void* workspace) const {
  graph_->Run(
      handle,
      {{kInput, memory.x}, {kWeight, memory.weight}, {kOutput, memory.y}},
      workspace);
}

}  // namespace onnx_fp8::cuda
