// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// A group of one rank: results are copies of operands.
class OneRank : public Communicator {
 public:
  using Communicator::Communicator;

  int rank() const override { return 0; }
  int size() const override { return 1; }
  void Barrier() override {}
  // There are no others; the caller has the error.
  void Abort(const std::string&) override {}

 protected:
  void Gather(const void* send, void* receive, size_t bytes) override {
    std::memmove(receive, send, bytes);
  }
  void Exchange(const void* send, void* receive, size_t bytes) override {
    std::memmove(receive, send, bytes);
  }
  void Send(void*, size_t, int) override {}
  std::unique_ptr<Communicator> MakeGroup(int) override {
    return std::make_unique<OneRank>(message_bytes());
  }
};

}  // namespace onnx_fp8
