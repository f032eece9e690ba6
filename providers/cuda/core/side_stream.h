// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <vector>

#include "providers/cuda/core/queue.h"
#include "providers/side_queue.h"

namespace onnx_fp8::cuda {

// A stream beside the provider's. Events order the works of both, so a CUDA
// graph may record them. The host starts a work at once and never waits.
class SideStream : public SideQueue {
 public:
  // `main` must outlive it. Errors: the CUDA runtime's.
  SideStream(Queue& main, Priority priority)
      : main_(main), side_({}, priority) {}
  ~SideStream() override;

  void* queue() override { return &side_; }
  void Start(std::function<void()> work) override;
  void Await() override;
  void Drop() override;

  // Waits until all works are done. Errors: failures of the works.
  void Synchronize() { side_.Synchronize(); }

 private:
  cudaEvent_t NewEvent();

  Queue& main_;
  Queue side_;
  std::vector<cudaEvent_t> free_;    // events
  std::deque<cudaEvent_t> started_;  // ends of works that are not awaited
};

}  // namespace onnx_fp8::cuda
