// SPDX-License-Identifier: Apache-2.0
#include "data/pass_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/random.h"

namespace onnx_fp8 {
namespace {

// The shuffle's own part of its keys: other draws have the same seed.
constexpr uint64_t kShuffleKey = 0x73687566666c6531;
// The same for the order of the blocks, beside the orders inside them.
constexpr uint64_t kBlocksKey = 0x626c6f636b736f66;

}  // namespace

std::vector<uint32_t> Shuffled(int64_t count, uint64_t key) {
  std::vector<uint32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  for (uint64_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[RandomBelow(key, i, i + 1)]);
  }
  return order;
}

PassOrder::PassOrder(int64_t size, uint64_t seed, bool shuffle, int64_t block)
    : size_(size),
      seed_(seed),
      shuffle_(shuffle),
      block_(block > 0 ? std::min(block, size) : size),
      last_(size - (size - 1) / block_ * block_) {}

int64_t PassOrder::At(int64_t pass, int64_t i) {
  if (!shuffle_) return i;
  if (pass != pass_) BeginPass(pass);
  const int64_t begin_of_last = place_of_last_ * block_;
  int64_t place = i / block_;
  int64_t offset = i % block_;
  if (i >= begin_of_last + last_) {
    place = (i - last_) / block_ + 1;
    offset = (i - last_) % block_;
  }
  const int64_t block = blocks_[static_cast<size_t>(place)];
  if (block != open_) OpenBlock(block);
  return block * block_ + samples_[static_cast<size_t>(offset)];
}

void PassOrder::BeginPass(int64_t pass) {
  key_ = RandomBits(seed_ ^ kShuffleKey, static_cast<uint64_t>(pass));
  blocks_ = Shuffled((size_ - 1) / block_ + 1, RandomBits(key_, kBlocksKey));
  const auto last = std::ranges::max_element(blocks_);
  place_of_last_ = last - blocks_.begin();
  pass_ = pass;
  open_ = -1;
}

void PassOrder::OpenBlock(int64_t block) {
  const bool is_last = block == std::ssize(blocks_) - 1;
  // The only block of a pass has the key of the pass.
  samples_ =
      Shuffled(is_last ? last_ : block_, key_ ^ static_cast<uint64_t>(block));
  open_ = block;
}

}  // namespace onnx_fp8
