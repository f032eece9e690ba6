// SPDX-License-Identifier: Apache-2.0
#include "providers/run/progress_thread.h"

#include <utility>

namespace onnx_fp8 {

ProgressThread::~ProgressThread() {
  Drop();
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::Start(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    works_.push_back({std::move(work), false, nullptr});
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
}

void ProgressThread::Await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return works_.front().done; });
  const std::exception_ptr error = works_.front().error;
  works_.pop_front();
  --begun_;
  if (error) std::rethrow_exception(error);
}

void ProgressThread::Drop() {
  std::unique_lock lock(mutex_);
  works_.resize(begun_);
  changed_.wait(lock, [&] { return works_.empty() || works_.back().done; });
  works_.clear();
  begun_ = 0;
  failed_ = false;
}

void ProgressThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [&] { return ends_ || (begun_ < works_.size() && !failed_); });
    if (ends_) return;
    Work& work = works_[begun_++];
    lock.unlock();
    std::exception_ptr error;
    try {
      work.run();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    work.error = error;
    work.done = true;
    failed_ = error != nullptr;
    changed_.notify_all();
  }
}

}  // namespace onnx_fp8
