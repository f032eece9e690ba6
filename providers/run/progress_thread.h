// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "providers/side_queue.h"

namespace onnx_fp8 {

// A thread that does the works; it starts with the first one. Await returns
// when the work is done.
class ProgressThread : public SideQueue {
 public:
  ~ProgressThread() override;

  void Start(std::function<void()> work) override;
  void Await() override;
  void Drop() override;

 private:
  struct Work {
    std::function<void()> run;
    bool done = false;
    std::exception_ptr error;
  };

  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Not awaited yet. A deque: works stay where they are.
  std::deque<Work> works_;
  size_t begun_ = 0;  // of works_
  bool failed_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace onnx_fp8
