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
#include "collectives/tcp.h"

namespace onnx_fp8 {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// They differ: a socket that connects to a free port of its own machine may
// get that port itself, and hear itself.
constexpr uint64_t kHello = 0x31'38'70'66'78'6e'6e'6f;    // "onnxfp81"
constexpr uint64_t kWelcome = 0x32'38'70'66'78'6e'6e'6f;  // "onnxfp82"
constexpr uint64_t kMostText = uint64_t{1} << 16;
constexpr std::chrono::seconds kTimeToSend{5};
// A stranger may connect and say nothing.
constexpr std::chrono::seconds kTimeToGreet{2};
constexpr Milliseconds kPause{100};
// Ports after torchrun's, of which rank 0 takes the first free one.
constexpr int kPorts = 16;

// A rank that comes says who it is and sends its text. Rank 0 answers kWelcome
// at once, and the texts of all when they have come, or an error.
struct Hello {
  uint64_t magic, job;
  uint32_t size, rank;
  uint64_t bytes;
};

struct Answer {
  uint64_t failed, bytes;
};

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

Milliseconds Until(Clock::time_point end) {
  const auto left = std::chrono::ceil<Milliseconds>(end - Clock::now());
  return std::max(left, left.zero());
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
  Host(const Launcher& launcher, const std::string& text)
      : launcher_(launcher),
        meeting_(*launcher.meeting),
        texts_(static_cast<size_t>(launcher.size)),
        guests_(texts_.size()) {
    texts_[0] = text;
  }

  std::vector<std::string> Meet(Milliseconds patience) {
    const Socket listener = Listener();
    const auto end = Clock::now() + patience;
    try {
      while (!Missing().empty()) {
        Socket socket = Accept(listener, Until(end));
        Check(socket.open(), "[", launcher_.name, "] expected ", launcher_.size,
              " ranks at ", At(meeting_), " within ", Seconds(patience),
              " s, got none with RANK ", Missing());
        Admit(std::move(socket));
      }
    } catch (const Error& error) {
      AnswerAll(true, error.what());
      throw;
    }
    AnswerAll(false, Joined(texts_));
    return texts_;
  }

 private:
  // Tries for a while: another rank that asks a free port may hold it.
  Socket Listener() const {
    for (const auto end = Clock::now() + kTimeToGreet;;) {
      for (const int port : PortsOf(meeting_)) {
        Socket listener = ListenAt(IsLoopback(meeting_.host), port);
        if (listener.open()) return listener;
      }
      Check(Clock::now() < end,
            "[MASTER_PORT] expected a free port for rank 0, got ", At(meeting_),
            ": ", std::strerror(errno));
      std::this_thread::sleep_for(kPause);
    }
  }

  // "1, 3": those that have not come.
  std::string Missing() const {
    std::string missing;
    for (size_t r = 1; r < guests_.size(); ++r) {
      if (guests_[r].open()) continue;
      missing += Concat(missing.empty() ? "" : ", ", r);
    }
    return missing;
  }

  void Admit(Socket socket) {
    Hello hello;
    if (!ReceiveAll(socket, &hello, sizeof hello, kTimeToGreet) ||
        hello.magic != kHello || hello.job != Hash(meeting_.job) ||
        hello.bytes > kMostText) {
      return;  // a stranger
    }
    std::string text(hello.bytes, '\0');
    if (!ReceiveAll(socket, text.data(), text.size(), kTimeToSend) ||
        !SendAll(socket, &kWelcome, sizeof kWelcome, kTimeToSend)) {
      return;
    }
    try {
      Check(hello.size == guests_.size(), "[WORLD_SIZE] expected ",
            guests_.size(), ", as rank 0, got ", hello.size, " on rank ",
            hello.rank);
      Check(hello.rank >= 1 && hello.rank < hello.size, "[RANK] expected 1…",
            hello.size - 1, ", got ", hello.rank);
      const Socket& before = guests_[hello.rank];
      // A rank whose connection broke comes again.
      Check(!before.open() || HasEnded(before),
            "[RANK] expected one process with ", hello.rank, ", got two");
    } catch (const Error& error) {
      Send(socket, true, error.what());
      throw;
    }
    texts_[hello.rank] = std::move(text);
    guests_[hello.rank] = std::move(socket);
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
  std::vector<std::string> texts_;  // by rank
  std::vector<Socket> guests_;      // by rank; rank 0 has none
};

// ---- the other ranks

// A connection to rank 0 that has answered; closed if there is none.
Socket Visit(const Launcher& launcher, const std::vector<std::string>& hosts,
             const std::string& text) {
  const MeetingPoint& meeting = *launcher.meeting;
  const Hello hello = {kHello, Hash(meeting.job),
                       static_cast<uint32_t>(launcher.size),
                       static_cast<uint32_t>(launcher.rank), text.size()};
  for (const int port : PortsOf(meeting)) {
    Socket socket = Connect(hosts, port, kTimeToSend);
    uint64_t welcome = 0;
    if (socket.open() && SendAll(socket, &hello, sizeof hello, kTimeToSend) &&
        SendAll(socket, text.data(), text.size(), kTimeToSend) &&
        ReceiveAll(socket, &welcome, sizeof welcome, kTimeToGreet) &&
        welcome == kWelcome) {
      return socket;
    }
  }
  return Socket();
}

std::vector<std::string> MeetHost(const Launcher& launcher,
                                  const std::string& text,
                                  Milliseconds patience) {
  const MeetingPoint& meeting = *launcher.meeting;
  const auto end = Clock::now() + patience;
  Socket host;
  while (!host.open()) {
    // A cluster may name a host only after a while.
    const std::vector<std::string> hosts = Resolve(meeting.host);
    host = Visit(launcher, hosts, text);
    if (host.open()) break;
    Check(Clock::now() < end, hosts.empty() ? "[MASTER_ADDR]" : "[MASTER_PORT]",
          " expected rank 0 at ", At(meeting), " within ", Seconds(patience),
          " s, got ", hosts.empty() ? "a host without an address" : "no answer",
          " on rank ", launcher.rank);
    std::this_thread::sleep_for(kPause);
  }
  // Rank 0 may have begun to wait now.
  Answer answer;
  std::string all;
  bool received =
      ReceiveAll(host, &answer, sizeof answer, patience + kTimeToSend);
  if (received) {
    all.resize(answer.bytes);
    received = ReceiveAll(host, all.data(), all.size(), kTimeToSend);
  }
  Check(received, "[", launcher.name, "] expected word from rank 0 at ",
        At(meeting), ", got none: it has ended");
  Check(answer.failed == 0, all);
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < all.size();) {
    const size_t stop = all.find('\0', begin);
    texts.push_back(all.substr(begin, stop - begin));
    begin = stop + 1;
  }
  return texts;
}

}  // namespace

std::vector<std::string> MeetRanks(const Launcher& launcher,
                                   const std::string& text,
                                   Milliseconds patience) {
  if (launcher.rank == 0) return Host(launcher, text).Meet(patience);
  return MeetHost(launcher, text, patience);
}

}  // namespace onnx_fp8
