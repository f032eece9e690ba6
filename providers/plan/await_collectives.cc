// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/await_collectives.h"

#include <algorithm>
#include <map>

#include "base/index.h"

namespace onnx_fp8 {

std::vector<Flight> AwaitCollectives(
    const std::vector<CollectiveCall>& calls,
    const std::function<int(const Value*)>& memory_of,
    const std::vector<const Node*>& nodes, const std::vector<Memory>& memories,
    const std::vector<int>& position) {
  if (calls.empty()) return {};
  std::map<size_t, int> writers;  // of states, as positions
  for (const Memory& m : memories) {
    if (m.place != Place::kState || m.writer < 0) continue;
    writers[m.at] = position[Index(m.writer)];
  }
  const auto steps = static_cast<int>(position.size());
  std::vector<Flight> flights(calls.size());
  std::vector<int> holders;  // begins, from the last one
  int end = steps;
  for (size_t i = calls.size(); i-- > 0;) {
    Flight& flight = flights[i];
    flight.begin = position[Index(calls[i].front())];
    size_t kept = 0, made = 0;  // bytes of operands and results
    for (int step : calls[i]) {
      const Node& node = *nodes[Index(step)];
      for (const Value* result : node.outputs()) {
        if (!result) continue;
        const Memory& m = memories[Index(memory_of(result))];
        made += m.bytes;
        for (int reader : m.readers) {
          end = std::min(end, position[Index(reader)]);
        }
      }
      for (const Value* operand : node.inputs()) {
        if (!operand) continue;
        const Memory& m = memories[Index(memory_of(operand))];
        if (m.place == Place::kArena) kept += m.bytes;
        const auto it = writers.find(m.at);
        if (m.place == Place::kState && it != writers.end() &&
            it->second > flight.begin) {
          end = std::min(end, it->second);
        }
      }
    }
    if (kept > made) {
      if (holders.size() >= 2) end = std::min(end, holders.end()[-2]);
      holders.push_back(flight.begin);
    }
    const int next = flight.begin + static_cast<int>(calls[i].size());
    flight.beside = end > next && next < steps;
    // The host does another call itself, when those before it are done.
    if (!flight.beside) end = flight.begin;
    flight.end = end;
  }
  size_t before = 0;
  for (Flight& flight : flights) {
    flight.before = before;
    before += flight.beside;
  }
  return flights;
}

void MarkFlights(const std::vector<Flight>& flights, std::vector<Step>* steps) {
  const auto await = [&](int position, size_t calls) {
    if (Index(position) == steps->size()) return;
    size_t& awaits = (*steps)[Index(position)].awaits;
    awaits = std::max(awaits, calls);
  };
  for (const Flight& flight : flights) {
    (*steps)[Index(flight.begin)].beside = flight.beside;
    await(flight.end, flight.before + flight.beside);
  }
}

}  // namespace onnx_fp8
