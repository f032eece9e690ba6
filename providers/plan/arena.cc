// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/arena.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace onnx_fp8 {
namespace {

// The number of buffers that are placed by size: time grows with its square.
constexpr size_t kLarge = 8192;

// The free blocks below `top`; no two of them touch.
class Holes {
 public:
  // The best hole, or new memory at the top.
  size_t Take(size_t bytes) {
    auto best = by_size_.lower_bound({bytes, 0});
    if (best != by_size_.end()) {
      auto [size, offset] = *best;
      Remove(by_offset_.find(offset));
      if (size > bytes) Add(offset + bytes, size - bytes);
      return offset;
    }
    size_t offset = top_;
    if (!by_offset_.empty()) {
      auto last = std::prev(by_offset_.end());
      if (last->first + last->second == top_) {
        offset = last->first;
        Remove(last);
      }
    }
    top_ = offset + bytes;
    return offset;
  }

  void Give(size_t offset, size_t bytes) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        Remove(before);
      }
    }
    if (next != by_offset_.end() && offset + bytes == next->first) {
      bytes += next->second;
      Remove(next);
    }
    Add(offset, bytes);
  }

  size_t top() const { return top_; }

 private:
  using Offsets = std::map<size_t, size_t>;

  void Add(size_t offset, size_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void Remove(Offsets::iterator hole) {
    by_size_.erase({hole->second, hole->first});
    by_offset_.erase(hole);
  }

  Offsets by_offset_;                            // offset → bytes
  std::set<std::pair<size_t, size_t>> by_size_;  // (bytes, offset)
  size_t top_ = 0;
};

// Buffers take the smallest hole into which they fit, in order of their start.
// On a device many start together (run_together.h); there, buffers with the
// longest lifetime come first. O(n log n).
size_t PlaceInOrder(const std::vector<Buffer*>& buffers, size_t alignment) {
  std::vector<Buffer*> starting = buffers, ending = buffers;
  bool longest_first = alignment == kDeviceAlignment;
  std::ranges::stable_sort(starting, {}, [&](const Buffer* b) {
    return std::pair(b->start, longest_first ? -b->end : 0);
  });
  std::ranges::stable_sort(ending, {}, &Buffer::end);
  Holes holes;
  size_t ended = 0;
  for (Buffer* buffer : starting) {
    for (; ending[ended]->end < buffer->start; ++ended) {
      holes.Give(ending[ended]->offset,
                 Padded(ending[ended]->bytes, alignment));
    }
    buffer->offset = holes.Take(Padded(buffer->bytes, alignment));
  }
  return holes.top();
}

// The places of some buffers, by offset.
class Places {
 public:
  // Gives the buffer the lowest place that no other one has while it is in use.
  void Take(Buffer& buffer, size_t bytes) {
    size_t offset = 0;
    for (const Place& place : places_) {
      if (place.start > buffer.end || place.end < buffer.start) continue;
      if (offset + bytes <= place.offset) break;
      offset = std::max(offset, place.top);
    }
    buffer.offset = offset;
    const auto behind =
        std::ranges::upper_bound(places_, offset, {}, &Place::offset);
    places_.insert(behind, {buffer.start, buffer.end, offset, offset + bytes});
    top_ = std::max(top_, offset + bytes);
  }

  size_t top() const { return top_; }

 private:
  struct Place {
    int start, end;
    size_t offset, top;
  };

  std::vector<Place> places_;
  size_t top_ = 0;
};

// What comes first: size, or size times lifetime.
enum class Largest { kInSize, kInArea };

// The largest buffers come first, and the longest lifetimes of one size: small
// buffers then fill the gaps between large ones. The smallest of very many lie
// behind the others, in order of their start.
size_t PlaceLargestFirst(std::vector<Buffer*> buffers, size_t alignment,
                         Largest largest) {
  const auto size = [&](const Buffer* b) {
    return Padded(b->bytes, alignment);
  };
  std::ranges::stable_sort(buffers, std::greater(), [&](const Buffer* b) {
    const auto steps = static_cast<size_t>(b->end - b->start + 1);
    const size_t first = size(b) * (largest == Largest::kInArea ? steps : 1);
    return std::pair(first, steps);
  });
  std::vector<Buffer*> small;
  Places places;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (i < kLarge) {
      places.Take(*buffers[i], size(buffers[i]));
    } else {
      small.push_back(buffers[i]);
    }
  }
  const size_t more = PlaceInOrder(small, alignment);
  for (Buffer* buffer : small) buffer->offset += places.top();
  return places.top() + more;
}

}  // namespace

size_t Padded(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

size_t PlaceBuffers(std::vector<Buffer>& buffers, size_t alignment) {
  std::vector<Buffer*> placed;
  for (Buffer& buffer : buffers) {
    buffer.offset = 0;
    if (buffer.bytes > 0) placed.push_back(&buffer);
  }
  size_t least = PlaceInOrder(placed, alignment);
  const size_t live = LiveBytes(buffers, alignment);
  for (Largest largest : {Largest::kInSize, Largest::kInArea}) {
    if (least == live) break;
    const std::vector<Buffer> before = buffers;
    const size_t bytes = PlaceLargestFirst(placed, alignment, largest);
    if (bytes >= least) buffers = before;
    least = std::min(least, bytes);
  }
  return least;
}

size_t LiveBytes(const std::vector<Buffer>& buffers, size_t alignment) {
  std::map<int, std::pair<size_t, size_t>> changes;  // step → (more, less)
  for (const Buffer& buffer : buffers) {
    changes[buffer.start].first += Padded(buffer.bytes, alignment);
    changes[buffer.end + 1].second += Padded(buffer.bytes, alignment);
  }
  size_t live = 0, most = 0;
  for (const auto& [step, change] : changes) {
    live = live + change.first - change.second;
    most = std::max(most, live);
  }
  return most;
}

}  // namespace onnx_fp8
