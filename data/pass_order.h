// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace onnx_fp8 {

// The order of samples in each pass over them. It depends on the arguments
// alone, and any place of it can be asked for.
class PassOrder {
 public:
  // Without `shuffle` the order of the files. Else a shuffle keyed by seed and
  // pass; with `block` > 0 neighbors stay together: blocks of so many samples
  // come in a random order, and the samples of a block, too. REQUIRES: 0 < size
  // < 2^32, block >= 0.
  PassOrder(int64_t size, uint64_t seed, bool shuffle, int64_t block = 0);

  int64_t size() const { return size_; }

  // The sample at place i of a pass. REQUIRES: 0 <= i < size().
  int64_t At(int64_t pass, int64_t i);

 private:
  void BeginPass(int64_t pass);
  void OpenBlock(int64_t block);

  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
  int64_t block_;  // samples of a block; the last one may have less
  int64_t last_;   // samples of the last block
  // Caches: of the pass, and of the block that was asked for last.
  int64_t pass_ = -1;
  uint64_t key_ = 0;
  std::vector<uint32_t> blocks_;
  int64_t place_of_last_ = 0;
  int64_t open_ = -1;
  std::vector<uint32_t> samples_;
};

// 0 … count - 1 in an order that depends on the key: Fisher and Yates' shuffle
// with counter-based numbers. REQUIRES: count < 2^32.
std::vector<uint32_t> Shuffled(int64_t count, uint64_t key);

}  // namespace onnx_fp8
