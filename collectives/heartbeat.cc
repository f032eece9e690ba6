// SPDX-License-Identifier: Apache-2.0
#include "collectives/heartbeat.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/printable.h"
#include "collectives/agreement.h"
#include "collectives/place.h"

namespace onnx_fp8 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTimeToPrint{500};
constexpr std::chrono::seconds kTimeToJoin{30};
constexpr size_t kMostReason = size_t{1} << 14;

std::string ProcessName() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return Concat(host, ", pid ", getpid());
}

}  // namespace

void EndProcess(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
  std::this_thread::sleep_for(kTimeToPrint);
  _exit(1);
}

Heartbeat::Heartbeat(Communicator& ranks, HeartbeatOptions options)
    : options_(std::move(options)),
      rank_(ranks.rank()),
      size_(ranks.size()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  Check(wake_.open(), "[heartbeat] expected an eventfd, got ",
        std::strerror(errno));
  Join(ranks);
  // Signals are for the other threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread(&Heartbeat::Beat, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Heartbeat::~Heartbeat() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    closes_ = true;
  }
  Wake();
  thread_.join();
}

void Heartbeat::Finish() {
  {
    std::lock_guard lock(mutex_);
    finishes_ = true;
  }
  Wake();
  thread_.join();
}

void Heartbeat::Abort(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    aborts_ = reason.substr(0, kMostReason);
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

// Opens the connections of this rank: to the rank above it in the tree and to
// the ranks below it.
void Heartbeat::Join(Communicator& ranks) {
  names_ = GatherTexts(ranks, ProcessName());
  const std::vector<std::string> machines = GatherTexts(ranks, Machine());
  const bool loopback =
      std::ranges::count(machines, machines[0]) == std::ssize(machines);
  const std::string address = !options_.address.empty() ? options_.address
                              : loopback                ? kLoopback
                                                        : "0.0.0.0";
  Pact pact = {options_.secret, Channel::kHeartbeat, 0};
  if (pact.secret.empty()) {
    Code drawn = RandomCode();
    ranks.Broadcast(drawn.data(), drawn.size(), 0);
    pact.secret.assign(drawn.begin(), drawn.end());
  }

  const int first = rank_ * options_.children + 1;
  const int below = std::clamp(size_ - first, 0, options_.children);
  Place place;
  Socket listener;
  if (below > 0) listener = ListenAtPlace(address, &place);
  const std::vector<std::string> places = GatherTexts(ranks, Text(place));

  if (rank_ > 0) {
    const int parent = (rank_ - 1) / options_.children;
    const auto at = static_cast<size_t>(parent);
    const Place above = ParsePlace(places[at]);
    Socket socket =
        ConnectToPlace(above, pact, {size_, rank_, parent}, kTimeToJoin);
    std::string addresses;
    for (const std::string& a : above.addresses) addresses += " " + a;
    Check(socket.open(),
          Line(rank_, Concat("cannot reach rank ", parent, " (", names_[at],
                             ") over TCP at port ", above.port,
                             addresses.empty() ? "" : " of", addresses)));
    links_.push_back({parent, std::move(socket), {}});
  }
  if (below == 0) return;
  Reception reception(std::move(listener), pact, rank_, 0, options_.say);
  std::map<int, Socket> children =
      AcceptRanks(reception, size_, first, first + below, 2 * kTimeToJoin);
  Check(std::ssize(children) == below,
        Line(rank_, Concat("expected connections of ", below, " ranks, got ",
                           children.size())));
  for (auto& [rank, socket] : children) {
    links_.push_back({rank, std::move(socket), {}});
  }
}

void Heartbeat::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.fd(), &one, sizeof one);
}

bool Heartbeat::AllFinished() const {
  return std::ranges::all_of(links_, &Link::finished);
}

// The thread.
void Heartbeat::Beat() {
  bool finished = false;
  auto next = Clock::now();
  while (!failed_ && !(finished && AllFinished())) {
    Wait(next);
    if (failed_) return;
    {
      std::unique_lock lock(mutex_);
      if (closes_) return;
      if (aborts_) {
        const std::string reason = *aborts_;
        lock.unlock();
        Send(Kind::kFault, rank_, reason);
        std::fprintf(stderr, "%s\n", Line(rank_, reason).c_str());
        std::fflush(stderr);
        std::this_thread::sleep_for(kTimeToPrint);
        return;
      }
      if (finishes_ && !finished) {
        finished = true;
        Send(Kind::kFinished, rank_);
      }
    }
    if (Clock::now() < next) continue;
    // However late this beat is, it counts once.
    next = Clock::now() + options_.beat;
    Send(Kind::kBeat, rank_);
    for (Link& link : links_) {
      if (link.finished || ++link.silent <= options_.silent_beats) continue;
      const auto silence = options_.silent_beats * options_.beat;
      Fault(link.rank,
            Concat("no sign of life for ",
                   std::chrono::duration<double>(silence).count(),
                   " s: the process is stopped, or its machine or network is "
                   "down"));
      return;
    }
  }
}

void Heartbeat::Wait(Clock::time_point until) {
  std::vector<pollfd> ready = {{wake_.fd(), POLLIN, 0}};
  for (const Link& link : links_) {
    ready.push_back({link.socket.fd(), POLLIN, 0});  // -1: it has ended
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  if (poll(ready.data(), ready.size(),
           static_cast<int>(std::max(left, left.zero()).count())) <= 0) {
    return;
  }
  uint64_t calls;
  [[maybe_unused]] const ssize_t n = read(wake_.fd(), &calls, sizeof calls);
  for (size_t i = 0; i < links_.size() && !failed_; ++i) {
    if (ready[i + 1].revents != 0) Receive(links_[i]);
  }
}

void Heartbeat::Receive(Link& link) {
  char bytes[4096];
  const ssize_t got = recv(link.socket.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) {
    link.silent = 0;
    link.received.append(bytes, static_cast<size_t>(got));
    Read(link);
    return;
  }
  link.socket = Socket();
  if (!link.finished) {
    Fault(link.rank, "the process was killed or has crashed");
  }
}

void Heartbeat::Read(Link& link) {
  Header header;
  while (link.received.size() >= sizeof header) {
    std::memcpy(&header, link.received.data(), sizeof header);
    if (header.rank >= names_.size() || header.bytes > kMostReason) {
      Fault(link.rank, "expected a heartbeat, got other data");
      return;
    }
    if (link.received.size() - sizeof header < header.bytes) return;
    const std::string text = link.received.substr(sizeof header, header.bytes);
    link.received.erase(0, sizeof header + header.bytes);
    if (header.kind == Kind::kFinished) link.finished = true;
    if (header.kind != Kind::kFault) continue;
    Fault(static_cast<int>(header.rank), text);
    return;
  }
}

// A rank that can't receive will be at fault itself.
void Heartbeat::Send(Kind kind, int rank, const std::string& text) {
  const Header header = {kind, static_cast<uint32_t>(rank),
                         static_cast<uint32_t>(text.size())};
  std::string message(reinterpret_cast<const char*>(&header), sizeof header);
  message += text;
  for (const Link& link : links_) {
    if (link.socket.open()) {
      SendNow(link.socket, message.data(), message.size());
    }
  }
}

// The rank that told this one ignores it.
void Heartbeat::Fault(int rank, const std::string& reason) {
  failed_ = true;
  Send(Kind::kFault, rank, reason);
  options_.end(Line(rank, reason));
}

std::string Heartbeat::Line(int rank, const std::string& reason) const {
  return Printable(Concat("rank ", rank, " of ", size_, " (",
                          names_[static_cast<size_t>(rank)], "): ", reason));
}

}  // namespace onnx_fp8
