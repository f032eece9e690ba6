// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/tcp.h"

namespace onnx_fp8 {

// Where a rank listens for other ranks.
struct Place {
  int port = 0;
  // Others show it when they connect: a stranger that finds the port does not
  // know it.
  std::array<uint64_t, 2> token = {};
  std::string machine;
  std::vector<std::string> addresses;  // IPv4; none: the loopback alone
};

// Equal for two processes that have a loopback in common.
std::string Machine();

// A socket that listens on a free port, and its place. Errors: the system's.
Socket ListenAtPlace(bool loopback, Place* place);

// A place as one line, and back.
std::string Text(const Place& place);
Place ParsePlace(const std::string& text);

// Connects to `place` and shows its token and the number of this rank. Closed
// if nothing answers within `patience`.
Socket ConnectToPlace(const Place& place, int rank,
                      std::chrono::milliseconds patience);

struct Visitor {
  int rank;
  Socket socket;
};

// The next `count` ranks that connect to `place`, in any order. It drops
// connections without the token, and ranks outside of [first, end). Fewer if
// the others do not come within `patience`.
std::vector<Visitor> AcceptVisitors(const Socket& listener, const Place& place,
                                    int first, int end, int count,
                                    std::chrono::milliseconds patience);

}  // namespace onnx_fp8
