// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/free_early.h"

#include <algorithm>
#include <numeric>

#include "providers/plan/plan.h"

namespace onnx_fp8 {
namespace {

// How many of the value's readers, from the first, have to stay.
size_t Staying(const Occupant& value, const std::vector<size_t>& results) {
  size_t made = 0, i = value.readers.size();
  while (i > 0) {
    size_t more = results[Index(value.readers[i - 1])];
    if (more >= value.bytes - made) break;
    made += more;
    --i;
  }
  return i;
}

}  // namespace

std::vector<int> OrderThatFreesEarly(const std::vector<Occupant>& occupants,
                                     const std::vector<size_t>& results) {
  std::vector<int> ready(results.size(), -1);  // the last writer for which it
                                               // waits
  for (const Occupant& value : occupants) {
    for (int reader : value.readers) {
      ready[Index(reader)] = std::max(ready[Index(reader)], value.writer);
    }
  }
  // Each step comes right after this one, or at its own place.
  std::vector<int> after(results.size());
  std::iota(after.begin(), after.end(), 0);
  for (const Occupant& value : occupants) {
    size_t staying = Staying(value, results);
    int when = staying ? value.readers[staying - 1] : value.writer;
    for (size_t i = staying; i < value.readers.size(); ++i) {
      when = std::max(when, ready[Index(value.readers[i])]);
    }
    for (size_t i = staying; i < value.readers.size(); ++i) {
      int& place = after[Index(value.readers[i])];
      place = std::min(place, when);
    }
  }
  std::vector<int> order(results.size());
  std::iota(order.begin(), order.end(), 0);
  auto moved = [&](int step) { return after[Index(step)] != step; };
  std::ranges::stable_sort(order, [&](int a, int b) {
    if (after[Index(a)] != after[Index(b)]) {
      return after[Index(a)] < after[Index(b)];
    }
    return moved(a) < moved(b);
  });
  return order;
}

}  // namespace onnx_fp8
