// SPDX-License-Identifier: Apache-2.0
#include "collectives/place.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// A stranger may connect and say nothing.
constexpr std::chrono::seconds kTimeToGreet{2};

struct Greeting {
  std::array<uint64_t, 2> token;
  uint64_t rank;
};

}  // namespace

std::string Machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code none;
  return boot +
         std::filesystem::read_symlink("/proc/self/ns/net", none).string();
}

Socket ListenAtPlace(bool loopback, Place* place) {
  *place = Place();
  Socket listener = Listen(loopback, &place->port);
  Check(getrandom(&place->token, sizeof place->token, 0) == sizeof place->token,
        "[TCP] expected random bytes, got ", std::strerror(errno));
  place->machine = Machine();
  if (!loopback) place->addresses = NetworkAddresses();
  return listener;
}

std::string Text(const Place& place) {
  std::ostringstream text;
  text << place.port << " " << place.token[0] << " " << place.token[1] << " "
       << std::quoted(place.machine);
  for (const std::string& address : place.addresses) text << " " << address;
  return text.str();
}

Place ParsePlace(const std::string& text) {
  Place place;
  std::istringstream words(text);
  words >> place.port >> place.token[0] >> place.token[1] >>
      std::quoted(place.machine);
  for (std::string address; words >> address;) {
    place.addresses.push_back(address);
  }
  return place;
}

Socket ConnectToPlace(const Place& place, int rank, Milliseconds patience) {
  const bool near = place.machine == Machine();
  Socket socket =
      Connect(near ? std::vector<std::string>{"127.0.0.1"} : place.addresses,
              place.port, patience);
  const Greeting greeting = {place.token, static_cast<uint64_t>(rank)};
  if (!socket.open() || !SendNow(socket, &greeting, sizeof greeting)) {
    return Socket();
  }
  return socket;
}

std::vector<Visitor> AcceptVisitors(const Socket& listener, const Place& place,
                                    int first, int end, int count,
                                    Milliseconds patience) {
  std::vector<Visitor> visitors;
  const auto until = Clock::now() + patience;
  while (std::ssize(visitors) < count) {
    const auto left = std::chrono::ceil<Milliseconds>(until - Clock::now());
    Socket socket = Accept(listener, std::max(left, left.zero()));
    if (!socket.open()) break;
    Greeting greeting;
    if (ReceiveAll(socket, &greeting, sizeof greeting, kTimeToGreet) &&
        greeting.token == place.token &&
        greeting.rank >= static_cast<uint64_t>(first) &&
        greeting.rank < static_cast<uint64_t>(end)) {
      visitors.push_back({static_cast<int>(greeting.rank), std::move(socket)});
    }
  }
  return visitors;
}

}  // namespace onnx_fp8
