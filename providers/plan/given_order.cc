// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/given_order.h"

#include <unordered_set>

#include "providers/plan/free_early.h"

namespace onnx_fp8 {

std::vector<int> GivenOrder(const std::vector<Memory>& memories,
                            const std::vector<Assignment>& assignments,
                            size_t steps) {
  std::vector<Occupant> occupants;
  std::vector<size_t> results(steps);
  std::unordered_set<int> taken;  // next values of state
  for (const Assignment& a : assignments) taken.insert(a.next);
  for (size_t i = 0; i < memories.size(); ++i) {
    const Memory& m = memories[i];
    bool stays = m.place != Place::kArena || m.writer < 0 ||
                 taken.contains(static_cast<int>(i));
    if (m.writer >= 0) {
      size_t& bytes = results[static_cast<size_t>(m.writer)];
      bytes = stays || bytes == kElsewhere ? kElsewhere : bytes + m.bytes;
    }
    occupants.push_back({m.writer, stays ? 0 : m.bytes, m.readers});
  }
  return OrderThatFreesEarly(occupants, results);
}

}  // namespace onnx_fp8
