// SPDX-License-Identifier: Apache-2.0
#include "collectives/place.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

constexpr std::chrono::milliseconds kPauseToConnect{20};

}  // namespace

std::string Machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code none;
  return boot +
         std::filesystem::read_symlink("/proc/self/ns/net", none).string();
}

Socket ListenAtPlace(const std::string& address, Place* place) {
  *place = Place();
  Socket listener = Listen(address, &place->port);
  place->addresses = address == "0.0.0.0" ? NetworkAddresses()
                                          : std::vector<std::string>{address};
  return listener;
}

std::string Text(const Place& place) {
  std::string text = std::to_string(place.port);
  for (const std::string& address : place.addresses) text += " " + address;
  return text;
}

Place ParsePlace(const std::string& text) {
  Place place;
  std::istringstream words(text);
  words >> place.port;
  for (std::string address; words >> address;) {
    place.addresses.push_back(address);
  }
  return place;
}

Socket ConnectToPlace(const Place& place, const Pact& pact, const Ends& ends,
                      std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    for (const std::string& address : place.addresses) {
      const auto share = patience / place.addresses.size();
      Socket socket = Connect({address}, place.port, share);
      if (socket.open() &&
          Introduce(socket, pact, ends, "", share) == Greeted::kWelcome) {
        return socket;
      }
    }
    std::this_thread::sleep_for(kPauseToConnect);
  } while (std::chrono::steady_clock::now() < end);
  return Socket();
}

std::map<int, Socket> AcceptRanks(Reception& reception, int size, int first,
                                  int end, std::chrono::milliseconds patience) {
  std::map<int, Socket> ranks;
  const auto until = std::chrono::steady_clock::now() + patience;
  while (std::ssize(ranks) < end - first) {
    std::optional<Guest> guest = reception.Next(until);
    if (!guest) break;
    const bool fits =
        guest->size == size && guest->rank >= first && guest->rank < end;
    if (fits) ranks.insert_or_assign(guest->rank, std::move(guest->socket));
  }
  return ranks;
}

}  // namespace onnx_fp8
