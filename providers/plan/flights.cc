// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/flights.h"

#include <algorithm>

namespace onnx_fp8 {

std::vector<Flight> FindFlights(const std::vector<SideCall>& calls, int steps) {
  std::vector<Flight> flights(calls.size());
  std::vector<int> holders;  // begins, from the last one
  int end = steps;
  for (size_t i = calls.size(); i-- > 0;) {
    const SideCall& call = calls[i];
    end = std::min(end, call.needed);
    if (call.bounded && holders.size() >= 2) {
      end = std::min(end, holders.end()[-2]);
    }
    if (call.holds) holders.push_back(call.begin);
    const int next = call.begin + call.count;
    const bool beside = end > next && next < steps;
    // Such a call is done at once, when those before it are done.
    if (!beside) end = call.begin;
    flights[i] = {.begin = call.begin, .end = end, .beside = beside};
  }
  size_t before = 0;
  for (Flight& flight : flights) {
    flight.before = before;
    before += flight.beside;
  }
  return flights;
}

void MarkFlights(Side side, const std::vector<Flight>& flights,
                 std::vector<Step>* steps) {
  const auto await = [&](int position, size_t calls) {
    if (Index(position) == steps->size()) return;
    size_t& awaits = (*steps)[Index(position)].AwaitsOf(side);
    awaits = std::max(awaits, calls);
  };
  for (const Flight& flight : flights) {
    (*steps)[Index(flight.begin)].beside = flight.beside;
    await(flight.end, flight.before + flight.beside);
  }
}

}  // namespace onnx_fp8
