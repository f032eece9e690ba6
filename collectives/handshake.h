// SPDX-License-Identifier: Apache-2.0
//
// How ranks prove to each other over TCP that they belong to one job. The guest
// connects and the host listens:
//
//   guest → host   Hello: channel, job, size, rank, host's rank, fresh nonce
//   host → guest   Challenge: fresh nonce, code of "host"
//   guest → host   Proof: code of "guest", a text
//   host → guest   a welcome
//
// A code is the HMAC-SHA-256, with the job's secret as its key, of the side's
// name, the hello and the host's nonce; the guest's covers its text, too. So a
// code serves one connection, one side, one channel and one pair of ranks.
// Without a secret the key is empty: then it keeps out no more than garbage.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>

#include "collectives/hmac.h"
#include "collectives/tcp.h"

namespace onnx_fp8 {

enum class Channel : uint32_t { kMeeting = 1, kData = 2, kHeartbeat = 3 };

// What both sides must have in common.
struct Pact {
  std::string secret;
  Channel channel = Channel::kMeeting;
  uint64_t job = 0;
};

// The ranks of a connection.
struct Ends {
  int size = 0, guest = 0, host = 0;
};

struct Hello {
  uint64_t magic = 0, job = 0;
  Channel channel = {};
  uint32_t size = 0, rank = 0, host = 0;
  Code nonce = {};
};

enum class Greeted { kNotAtAll, kWithAnotherSecret, kWelcome };

// The guest's side, on a new connection.
Greeted Introduce(const Socket& socket, const Pact& pact, const Ends& ends,
                  const std::string& text, std::chrono::milliseconds patience);

struct Guest {
  int size, rank;
  std::string text;
  Socket socket;
};

// Tells a person something.
using Say = std::function<void(const std::string&)>;

// The host's side. It serves all connections at once: one that is slow or
// silent holds nothing but its own slot, which it loses after a few seconds, or
// when many others have come. One without a proof is dropped; `say` tells of
// the first of these.
class Reception {
 public:
  // `host`: the rank of this process. `most_text`: of a guest's text, in bytes.
  Reception(Socket listener, Pact pact, int host, size_t most_text, Say say);

  // The next guest that has proved itself; none before `end`.
  std::optional<Guest> Next(std::chrono::steady_clock::time_point end);

 private:
  struct Visit {
    Socket socket;
    std::chrono::steady_clock::time_point end;
    std::string received = {};
    std::optional<Hello> hello = {};
    Code nonce = {};
  };
  enum class Fate { kWaits, kProved, kStranger, kGone };

  void Admit();
  Fate Read(Visit& visit, Guest* guest) const;
  void Drop(const Visit& visit);

  Socket listener_;
  Pact pact_;
  int host_;
  size_t most_text_;
  Say say_;
  std::list<Visit> visits_;  // the oldest first
};

}  // namespace onnx_fp8
