// SPDX-License-Identifier: Apache-2.0
#include "collectives/rendezvous.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/hash.h"

namespace onnx_fp8 {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using TextOf = std::function<std::string(const std::string&)>;

constexpr uint64_t kMostText = uint64_t{1} << 16;
constexpr std::chrono::seconds kTimeToSend{5};
// A stranger may listen and say nothing.
constexpr std::chrono::seconds kTimeToGreet{2};
constexpr Milliseconds kPause{100};
// Ports after torchrun's, of which rank 0 takes the first free one.
constexpr int kPorts = 16;

// Rank 0 sends it when all have come: with their texts, or an error.
struct Answer {
  uint64_t failed, bytes;
};

Pact PactOf(const MeetingPoint& meeting, const std::string& secret) {
  return {secret, Channel::kMeeting, Hash(meeting.job)};
}

std::vector<int> PortsOf(const MeetingPoint& meeting) {
  if (!meeting.port_is_taken) return {meeting.port};
  std::vector<int> ports;
  for (int i = 1; i <= kPorts; ++i) {
    if (meeting.port + i <= 65535) ports.push_back(meeting.port + i);
  }
  return ports;
}

std::string At(const MeetingPoint& meeting) {
  return Concat(meeting.host, ":", meeting.port,
                meeting.port_is_taken
                    ? Concat(" (the ", kPorts, " ports after it)")
                    : "");
}

double Seconds(Milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

bool HasEnded(const Socket& socket) {
  char byte;
  return recv(socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

std::string Joined(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += text + '\0';
  return joined;
}

// ---- rank 0

class Host {
 public:
  Host(const Launcher& launcher, const std::string& secret, const Say& say)
      : launcher_(launcher),
        meeting_(*launcher.meeting),
        secret_(secret),
        say_(say),
        texts_(static_cast<size_t>(launcher.size)),
        guests_(texts_.size()) {}

  std::vector<std::string> Meet(const TextOf& text, Milliseconds patience) {
    const auto end = Clock::now() + patience;
    Socket listener = Listener(end);
    const std::string own = OwnAddress(listener);
    texts_[0] = text(own);
    Reception reception(std::move(listener), PactOf(meeting_, secret_), 0,
                        kMostText, say_);
    try {
      while (!Missing().empty()) {
        std::optional<Guest> guest = reception.Next(end);
        Check(guest.has_value(), "[", launcher_.name, "] expected ",
              launcher_.size, " ranks at ", At(meeting_),
              own == meeting_.host ? "" : Concat(", address ", own, ","),
              " within ", Seconds(patience), " s, got none with RANK ",
              Missing());
        Admit(std::move(*guest));
      }
    } catch (const Error& error) {
      AnswerAll(true, error.what());
      throw;
    }
    AnswerAll(false, Joined(texts_));
    return texts_;
  }

 private:
  // At the named address alone: the first one of this machine, a network's
  // before the loopback.
  Socket Listener(Clock::time_point end) const {
    // Tries for a while: another rank that asks a free port may hold it.
    const auto end_of_port = Clock::now() + kTimeToGreet;
    for (;;) {
      std::vector<std::string> hosts = Resolve(meeting_.host);
      std::ranges::stable_partition(hosts, [](const std::string& host) {
        return !host.starts_with("127.");
      });
      int error = 0;
      for (const std::string& host : hosts) {
        for (const int port : PortsOf(meeting_)) {
          Socket listener = ListenAt(host, port);
          if (listener.open()) return listener;
          if (error == 0 || error == EADDRNOTAVAIL) error = errno;
        }
      }
      const auto now = Clock::now();
      Check(now < end || !hosts.empty(),
            "[MASTER_ADDR] expected an address of rank 0's machine, got ",
            meeting_.host, ", a host without an address");
      Check(now < end_of_port || hosts.empty() || error != EADDRNOTAVAIL,
            "[MASTER_ADDR] expected an address of rank 0's machine, got ",
            meeting_.host, ", which is another's");
      Check(now < end_of_port || hosts.empty(),
            "[MASTER_PORT] expected a free port for rank 0, got ", At(meeting_),
            ": ", std::strerror(error));
      std::this_thread::sleep_for(kPause);
    }
  }

  // "1, 3": the ranks that have not come.
  std::string Missing() const {
    std::string missing;
    for (size_t r = 1; r < guests_.size(); ++r) {
      if (guests_[r].open()) continue;
      missing += Concat(missing.empty() ? "" : ", ", r);
    }
    return missing;
  }

  void Admit(Guest guest) {
    try {
      Check(guest.size == launcher_.size, "[WORLD_SIZE] expected ",
            launcher_.size, ", as rank 0, got ", guest.size, " on rank ",
            guest.rank);
      Check(guest.rank >= 1 && guest.rank < guest.size, "[RANK] expected 1…",
            guest.size - 1, ", got ", guest.rank);
      const Socket& before = guests_[static_cast<size_t>(guest.rank)];
      // A rank whose connection broke comes again.
      Check(!before.open() || HasEnded(before),
            "[RANK] expected one process with ", guest.rank, ", got two");
    } catch (const Error& error) {
      Send(guest.socket, true, error.what());
      // Without a secret anybody may say so.
      if (!secret_.empty()) throw;
      if (say_) {
        say_(Concat("rank 0 has dropped a connection from ",
                    PeerOf(guest.socket), ": ", error.what()));
      }
      return;
    }
    const auto at = static_cast<size_t>(guest.rank);
    texts_[at] = std::move(guest.text);
    guests_[at] = std::move(guest.socket);
  }

  static void Send(const Socket& guest, bool failed, const std::string& text) {
    const Answer answer = {failed, text.size()};
    if (SendAll(guest, &answer, sizeof answer, kTimeToSend)) {
      SendAll(guest, text.data(), text.size(), kTimeToSend);
    }
  }

  void AnswerAll(bool failed, const std::string& text) const {
    for (const Socket& guest : guests_) {
      if (guest.open()) Send(guest, failed, text);
    }
  }

  const Launcher& launcher_;
  const MeetingPoint& meeting_;
  const std::string& secret_;
  const Say& say_;
  std::vector<std::string> texts_;  // by rank
  std::vector<Socket> guests_;      // by rank; rank 0 has none
};

// ---- the other ranks

// A connection to rank 0 that has welcomed this rank; closed if there is none.
Socket Visit(const Launcher& launcher, const std::vector<std::string>& hosts,
             const Pact& pact, const TextOf& text, bool* another_secret) {
  const MeetingPoint& meeting = *launcher.meeting;
  for (const int port : PortsOf(meeting)) {
    Socket socket = Connect(hosts, port, kTimeToSend);
    if (!socket.open()) continue;
    const Greeted greeted =
        Introduce(socket, pact, {launcher.size, launcher.rank, 0},
                  text(OwnAddress(socket)), kTimeToGreet);
    if (greeted == Greeted::kWelcome) return socket;
    *another_secret |= greeted == Greeted::kWithAnotherSecret;
  }
  return Socket();
}

// Why rank 0 was not found.
const char* Reason(const std::vector<std::string>& hosts, bool another) {
  if (hosts.empty()) return "a host without an address";
  return another ? "one with another secret" : "no answer";
}

MetRanks MeetHost(const Launcher& launcher, const JobSecret& secret,
                  const TextOf& text, Milliseconds patience) {
  const MeetingPoint& meeting = *launcher.meeting;
  const auto end = Clock::now() + patience;
  MetRanks met;
  Socket host;
  while (!host.open()) {
    // A cluster may name a host only after a while. A file with a secret may be
    // an earlier job's until rank 0 has replaced it.
    const std::vector<std::string> hosts = Resolve(meeting.host);
    const std::optional<std::string> known = secret.Read();
    bool another = false;
    if (known) {
      met.secret = *known;
      host = Visit(launcher, hosts, PactOf(meeting, *known), text, &another);
    }
    if (host.open()) break;
    const bool waits = Clock::now() < end;
    Check(waits || known, "[", secret.file(),
          "] expected the job's secret, which rank 0 leaves there, within ",
          Seconds(patience), " s, got no file on rank ", launcher.rank,
          ": all ranks need one folder, or the variable ONNX_FP8_JOB_SECRET");
    Check(waits, hosts.empty() ? "[MASTER_ADDR]" : "[MASTER_PORT]",
          " expected rank 0 at ", At(meeting), " within ", Seconds(patience),
          " s, got ", Reason(hosts, another), " on rank ", launcher.rank);
    std::this_thread::sleep_for(kPause);
  }
  // Rank 0 may have begun to wait now.
  Answer answer;
  std::string all;
  bool received =
      ReceiveAll(host, &answer, sizeof answer, patience + kTimeToSend) &&
      answer.bytes <= static_cast<uint64_t>(launcher.size) * (kMostText + 1);
  if (received) {
    all.resize(answer.bytes);
    received = ReceiveAll(host, all.data(), all.size(), kTimeToSend);
  }
  Check(received, "[", launcher.name, "] expected word from rank 0 at ",
        At(meeting), ", got none: it has ended");
  Check(answer.failed == 0, all);
  for (size_t begin = 0; begin < all.size();) {
    const size_t stop = all.find('\0', begin);
    if (stop == std::string::npos) break;
    met.texts.push_back(all.substr(begin, stop - begin));
    begin = stop + 1;
  }
  Check(std::ssize(met.texts) == launcher.size, "[", launcher.name,
        "] expected word of ", launcher.size, " ranks from rank 0, got ",
        met.texts.size());
  return met;
}

}  // namespace

MetRanks MeetRanks(const Launcher& launcher, const JobSecret& secret,
                   const TextOf& text, Milliseconds patience, const Say& say) {
  if (launcher.rank > 0) return MeetHost(launcher, secret, text, patience);
  const std::string own = secret.Read().value();
  return {Host(launcher, own, say).Meet(text, patience), own};
}

}  // namespace onnx_fp8
