// SPDX-License-Identifier: Apache-2.0
//
// A graph of cuDNN's frontend. Its headers take half a minute to compile: only
// files that describe graphs include this one.
#pragma once

#include <cudnn_frontend.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"

namespace onnx_fp8::cuda {

inline void CheckFrontend(cudnn_frontend::error_t error) {
  Check(error.is_good(), "cuDNN: ", error.get_message());
}

// REQUIRES: OpenCudnn() found the library.
class CudnnGraph {
 public:
  using Notes = std::vector<cudnn_frontend::NumericalNote_t>;

  // Operands and results are kept as `dtype`, and sums are floats. `gpu` is
  // cuDNN's JSON of a GPU of compute capability 9.0 that need not be here;
  // "": the one that is here. Errors: cuDNN can't read the JSON.
  CudnnGraph(cudnn_frontend::DataType_t dtype, const std::string& gpu) {
    graph_.set_io_data_type(dtype)
        .set_intermediate_data_type(cudnn_frontend::DataType_t::FLOAT)
        .set_compute_data_type(cudnn_frontend::DataType_t::FLOAT);
    if (gpu.empty()) return;
    auto device = std::make_shared<cudnn_frontend::DeviceProperties>();
    CheckFrontend(device->deserialize({gpu.begin(), gpu.end()}));
    graph_.set_device_properties(device).set_sm_version(90);
  }

  // Nodes copy what is known when they are added.
  cudnn_frontend::graph::Graph& nodes() { return graph_; }

  // Compiles the nodes for the handle's GPU; without a handle for the
  // constructor's. Engines with one of these notes are not taken. Errors: cuDNN
  // can't compute the graph.
  void Compile(cudnnContext* handle, const Notes& refused) {
    using cudnn_frontend::HeurMode_t;
    CheckFrontend(graph_.validate());
    CheckFrontend(graph_.build_operation_graph(handle));
    CheckFrontend(
        graph_.create_execution_plans({HeurMode_t::A, HeurMode_t::FALLBACK}));
    graph_.deselect_numeric_notes(refused);
    CheckFrontend(graph_.check_support());
    CheckFrontend(graph_.build_plans());
  }

  // REQUIRES: Compile. Errors: cuDNN's.
  size_t Workspace() const {
    int64_t bytes = 0;
    CheckFrontend(graph_.get_workspace_size(bytes));
    return static_cast<size_t>(bytes);
  }

  // Adds the work to the handle's stream. REQUIRES: Compile with a handle.
  // Errors: cuDNN's.
  void Run(cudnnContext* handle, std::unordered_map<int64_t, void*> memory,
           void* workspace) const {
    CheckFrontend(graph_.execute(handle, memory, workspace));
  }

 private:
  cudnn_frontend::graph::Graph graph_;
};

}  // namespace onnx_fp8::cuda
