// SPDX-License-Identifier: Apache-2.0
#include "collectives/handshake.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// They differ: a socket that connects to a free port of its own machine may
// get that port itself, and hear itself.
constexpr uint64_t kHello = 0x33'38'70'66'78'6e'6e'6f;      // "onnxfp83"
constexpr uint64_t kChallenge = 0x34'38'70'66'78'6e'6e'6f;  // "onnxfp84"
constexpr uint64_t kWelcome = 0x35'38'70'66'78'6e'6e'6f;    // "onnxfp85"
constexpr std::chrono::seconds kTimeOfVisit{5};
constexpr size_t kMostVisits = 128;

struct Challenge {
  uint64_t magic = kChallenge;
  Code nonce = {}, code = {};
};

// The text follows.
struct Proof {
  Code code = {};
  uint64_t bytes = 0;
};

template <typename T>
std::string_view BytesOf(const T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

Code CodeOf(const Pact& pact, const char* side, const Hello& hello,
            const Code& nonce, std::string_view text) {
  return Hmac(pact.secret,
              Concat(side, '\0', BytesOf(hello), BytesOf(nonce), text));
}

Milliseconds TimeUntil(Clock::time_point end) {
  const auto left = std::chrono::ceil<Milliseconds>(end - Clock::now());
  return std::max(left, left.zero());
}

}  // namespace

Greeted Introduce(const Socket& socket, const Pact& pact, const Ends& ends,
                  const std::string& text, Milliseconds patience) {
  const auto end = Clock::now() + patience;
  const Hello hello = {kHello,
                       pact.job,
                       pact.channel,
                       static_cast<uint32_t>(ends.size),
                       static_cast<uint32_t>(ends.guest),
                       static_cast<uint32_t>(ends.host),
                       RandomCode()};
  Challenge challenge;
  if (!SendAll(socket, &hello, sizeof hello, patience) ||
      !ReceiveAll(socket, &challenge, sizeof challenge, TimeUntil(end)) ||
      challenge.magic != kChallenge) {
    return Greeted::kNotAtAll;
  }
  if (!SameCode(challenge.code,
                CodeOf(pact, "host", hello, challenge.nonce, ""))) {
    return Greeted::kWithAnotherSecret;
  }
  const Proof proof = {CodeOf(pact, "guest", hello, challenge.nonce, text),
                       text.size()};
  uint64_t welcome = 0;
  const bool welcomed =
      SendAll(socket, &proof, sizeof proof, TimeUntil(end)) &&
      SendAll(socket, text.data(), text.size(), TimeUntil(end)) &&
      ReceiveAll(socket, &welcome, sizeof welcome, TimeUntil(end)) &&
      welcome == kWelcome;
  return welcomed ? Greeted::kWelcome : Greeted::kNotAtAll;
}

Reception::Reception(Socket listener, Pact pact, int host, size_t most_text,
                     Say say)
    : listener_(std::move(listener)),
      pact_(std::move(pact)),
      host_(host),
      most_text_(most_text),
      say_(std::move(say)) {}

std::optional<Guest> Reception::Next(Clock::time_point end) {
  for (;;) {
    std::vector<pollfd> ready = {{listener_.fd(), POLLIN, 0}};
    auto next = end;
    for (const Visit& visit : visits_) {
      ready.push_back({visit.socket.fd(), POLLIN, 0});
      next = std::min(next, visit.end);
    }
    const int found = poll(ready.data(), ready.size(),
                           static_cast<int>(TimeUntil(next).count()));
    if (found < 0 && errno != EINTR) return std::nullopt;
    const auto now = Clock::now();
    size_t i = 0;
    for (auto visit = visits_.begin(); visit != visits_.end();) {
      ++i;
      const bool speaks = found > 0 && ready[i].revents != 0;
      Guest guest = {};
      const Fate fate = speaks             ? Read(*visit, &guest)
                        : visit->end > now ? Fate::kWaits
                                           : Fate::kStranger;
      if (fate == Fate::kWaits) {
        ++visit;
        continue;
      }
      if (fate == Fate::kStranger) Drop(*visit);
      if (fate == Fate::kProved) guest.socket = std::move(visit->socket);
      visit = visits_.erase(visit);
      if (fate == Fate::kProved) return guest;
    }
    if (found > 0 && ready[0].revents != 0) Admit();
    if (now >= end) return std::nullopt;
  }
}

void Reception::Admit() {
  // A rank needs some milliseconds: the oldest visit is the least likely one.
  if (visits_.size() == kMostVisits) visits_.pop_front();
  Socket socket = Accept(listener_, Milliseconds(0));
  if (socket.open()) {
    visits_.push_back({std::move(socket), Clock::now() + kTimeOfVisit});
  } else {
    std::this_thread::sleep_for(Milliseconds(1));  // no descriptor is free
  }
}

// The bytes received in a visit. Each message has a size that is known before
// it is read.
Reception::Fate Reception::Read(Visit& visit, Guest* guest) const {
  for (;;) {
    size_t wanted = sizeof(Hello);
    Proof proof;
    if (visit.hello) {
      wanted = sizeof proof;
      if (visit.received.size() >= sizeof proof) {
        std::memcpy(&proof, visit.received.data(), sizeof proof);
        if (proof.bytes > most_text_) return Fate::kStranger;
        wanted += proof.bytes;
      }
    }
    if (visit.received.size() < wanted) {
      char bytes[4096];
      const ssize_t got = recv(
          visit.socket.fd(), bytes,
          std::min(sizeof bytes, wanted - visit.received.size()), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Fate::kWaits;
      if (got <= 0) {
        // Only looked whether somebody is there.
        const bool silent = !visit.hello && visit.received.empty();
        return silent ? Fate::kGone : Fate::kStranger;
      }
      visit.received.append(bytes, static_cast<size_t>(got));
      continue;
    }
    if (!visit.hello) {
      Hello hello;
      std::memcpy(&hello, visit.received.data(), sizeof hello);
      if (hello.magic != kHello) return Fate::kStranger;
      // Jobs that choose from the same ports meet each other's ranks.
      if (hello.job != pact_.job) return Fate::kGone;
      if (hello.channel != pact_.channel ||
          hello.host != static_cast<uint32_t>(host_)) {
        return Fate::kStranger;
      }
      visit.hello = hello;
      visit.nonce = RandomCode();
      visit.received.clear();
      const Challenge challenge = {
          kChallenge, visit.nonce,
          CodeOf(pact_, "host", hello, visit.nonce, "")};
      if (!SendNow(visit.socket, &challenge, sizeof challenge)) {
        return Fate::kGone;
      }
      continue;
    }
    const std::string text = visit.received.substr(sizeof proof);
    if (!SameCode(proof.code,
                  CodeOf(pact_, "guest", *visit.hello, visit.nonce, text)) ||
        visit.hello->size > INT32_MAX || visit.hello->rank > INT32_MAX) {
      return Fate::kStranger;
    }
    if (!SendNow(visit.socket, &kWelcome, sizeof kWelcome)) return Fate::kGone;
    *guest = {static_cast<int>(visit.hello->size),
              static_cast<int>(visit.hello->rank), text, Socket()};
    return Fate::kProved;
  }
}

void Reception::Drop(const Visit& visit) {
  if (!say_) return;
  std::exchange(say_, {})(
      Concat("rank ", host_, " has dropped a connection from ",
             PeerOf(visit.socket), " that does not prove to be of this job",
             pact_.secret.empty() ? "" : " by its secret",
             "; it drops others like it without a word"));
}

}  // namespace onnx_fp8
