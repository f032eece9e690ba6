// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "collectives/handshake.h"
#include "collectives/tcp.h"

namespace onnx_fp8 {

// Where a rank listens for other ranks.
struct Place {
  int port = 0;
  std::vector<std::string> addresses;  // IPv4
};

// Equal for two processes that have a loopback in common.
std::string Machine();

// A socket that listens at a free port of `address`, and its place. With
// 0.0.0.0 the place has the addresses of all networks. Errors: the system's.
Socket ListenAtPlace(const std::string& address, Place* place);

// A place as one line, and back.
std::string Text(const Place& place);
Place ParsePlace(const std::string& text);

// A connection to the rank that listens at `place`, which has proved itself.
// Closed if there is none within `patience`.
Socket ConnectToPlace(const Place& place, const Pact& pact, const Ends& ends,
                      std::chrono::milliseconds patience);

// Connections by rank, from the ranks in [first, end) of a job of `size`; fewer
// if some do not come within `patience`.
std::map<int, Socket> AcceptRanks(Reception& reception, int size, int first,
                                  int end, std::chrono::milliseconds patience);

}  // namespace onnx_fp8
