// SPDX-License-Identifier: Apache-2.0
#include "collectives/tcp_ranks.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "collectives/heartbeat.h"
#include "collectives/place.h"
#include "collectives/rendezvous.h"

namespace onnx_fp8 {
namespace {

constexpr std::chrono::seconds kTimeToConnect{10};
// The heartbeat knows of a lost rank, and why it is lost, before this.
constexpr std::chrono::seconds kTimeOfHeartbeat{10};

// What is left to move between this rank and another one.
struct Move {
  const std::byte* send = nullptr;
  size_t to_send = 0;
  std::byte* receive = nullptr;
  size_t to_receive = 0;
};

const std::byte* Bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}
std::byte* Bytes(void* data) { return static_cast<std::byte*>(data); }

class TcpRanks : public Communicator {
 public:
  // All ranks of the job. `links`: the connections by rank; that of this rank
  // is closed.
  TcpRanks(int rank, std::vector<Socket> links, size_t message_bytes)
      : Communicator(message_bytes),
        job_(*this),
        rank_(rank),
        members_(links.size()),
        links_(std::move(links)),
        exceptions_(std::uncaught_exceptions()) {
    std::iota(members_.begin(), members_.end(), size_t{0});
    heartbeat_.emplace(*this);
  }
  // A group of the job's ranks `members`, of which this is the one at `rank`.
  // It uses the job's connections: each rank takes part in one call at a time.
  TcpRanks(TcpRanks& job, int rank, std::vector<size_t> members)
      : Communicator(job.message_bytes()),
        job_(job),
        rank_(rank),
        members_(std::move(members)) {}
  ~TcpRanks() override {
    if (!heartbeat_ || std::uncaught_exceptions() != exceptions_) return;
    try {
      Barrier();
    } catch (const Error&) {
      return;  // another rank is lost
    }
    heartbeat_->Finish();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  void Barrier() override {
    std::vector<std::byte> all(members_.size());
    const std::byte mine{};
    Gather(&mine, all.data(), 1);
  }
  void Abort(const std::string& reason) override {
    job_.heartbeat_->Abort(reason);
  }

 protected:
  void Gather(const void* send, void* receive, size_t bytes) override {
    std::vector<Move> moves(members_.size());
    for (size_t r = 0; r < moves.size(); ++r) {
      moves[r] = {Bytes(send), bytes, Bytes(receive) + r * bytes, bytes};
    }
    MoveAll(moves);
  }
  void Exchange(const void* send, void* receive, size_t bytes) override {
    std::vector<Move> moves(members_.size());
    for (size_t r = 0; r < moves.size(); ++r) {
      moves[r] = {Bytes(send) + r * bytes, bytes, Bytes(receive) + r * bytes,
                  bytes};
    }
    MoveAll(moves);
  }
  void Send(void* data, size_t bytes, int root) override {
    std::vector<Move> moves(members_.size());
    if (rank_ == root) {
      for (Move& move : moves) move = {Bytes(data), bytes};
    } else {
      moves[static_cast<size_t>(root)] = {nullptr, 0, Bytes(data), bytes};
    }
    MoveAll(moves);
  }
  std::unique_ptr<Communicator> MakeGroup(int color) override {
    std::vector<int> colors(members_.size());
    Gather(&color, colors.data(), sizeof color);
    int rank = 0;
    std::vector<size_t> members;
    for (size_t r = 0; r < colors.size(); ++r) {
      if (colors[r] != color) continue;
      if (static_cast<int>(r) == rank_) rank = static_cast<int>(members.size());
      members.push_back(members_[r]);
    }
    return std::make_unique<TcpRanks>(job_, rank, std::move(members));
  }

 private:
  // Sends and receives in any order, as the others are ready: no rank can wait
  // for a rank that waits for it.
  void MoveAll(std::vector<Move>& moves);
  // With the job's rank `member`.
  void MoveSome(size_t member, Move* move) const;
  [[noreturn]] void Lost(size_t member, const char* reason) const;

  TcpRanks& job_;
  int rank_;
  std::vector<size_t> members_;
  // The rest is the job's.
  std::vector<Socket> links_;
  int exceptions_ = 0;
  std::optional<Heartbeat> heartbeat_;
};

void TcpRanks::MoveAll(std::vector<Move>& moves) {
  Move& own = moves[static_cast<size_t>(rank_)];
  if (own.to_receive > 0) std::memmove(own.receive, own.send, own.to_receive);
  own = Move();
  for (;;) {
    std::vector<pollfd> waits;
    for (size_t r = 0; r < moves.size(); ++r) {
      const size_t member = members_[r];
      MoveSome(member, &moves[r]);
      const int events = (moves[r].to_send > 0 ? POLLOUT : 0) |
                         (moves[r].to_receive > 0 ? POLLIN : 0);
      if (events == 0) continue;
      waits.push_back(
          {job_.links_[member].fd(), static_cast<short>(events), 0});
    }
    if (waits.empty()) return;
    poll(waits.data(), waits.size(), -1);
  }
}

// As much as goes without waiting.
void TcpRanks::MoveSome(size_t member, Move* move) const {
  const int fd = job_.links_[member].fd();
  while (move->to_send > 0) {
    const ssize_t sent =
        send(fd, move->send, move->to_send, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) Lost(member, std::strerror(errno));
    move->send += sent;
    move->to_send -= static_cast<size_t>(sent);
  }
  while (move->to_receive > 0) {
    const ssize_t got = recv(fd, move->receive, move->to_receive, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) Lost(member, got < 0 ? std::strerror(errno) : "its end");
    move->receive += got;
    move->to_receive -= static_cast<size_t>(got);
  }
}

// The heartbeat's thread ends this process with the reason.
void TcpRanks::Lost(size_t member, const char* reason) const {
  if (job_.heartbeat_) std::this_thread::sleep_for(kTimeOfHeartbeat);
  Fail("[TCP] expected data of rank ", member, ", got ", reason);
}

// A connection of this rank to each other rank. A rank connects to those before
// it; those after it connect to this one.
std::vector<Socket> ConnectAll(const Launcher& launcher,
                               std::chrono::milliseconds patience) {
  const MeetingPoint& meeting = *launcher.meeting;
  Place place;
  const Socket listener = ListenAtPlace(IsLoopback(meeting.host), &place);
  const std::vector<std::string> places =
      MeetRanks(launcher, Text(place), patience);
  std::vector<Socket> links(places.size());
  for (int r = 0; r < launcher.rank; ++r) {
    const auto at = static_cast<size_t>(r);
    links[at] =
        ConnectToPlace(ParsePlace(places[at]), launcher.rank, kTimeToConnect);
    Check(links[at].open(), "[TCP] rank ", launcher.rank, " cannot reach rank ",
          r, " at ", places[at]);
  }
  const int missing = launcher.size - launcher.rank - 1;
  std::vector<Visitor> visitors =
      AcceptVisitors(listener, place, launcher.rank + 1, launcher.size, missing,
                     kTimeToConnect);
  Check(std::ssize(visitors) == missing, "[TCP] rank ", launcher.rank,
        " expected connections of ", missing, " ranks, got ", visitors.size());
  for (Visitor& visitor : visitors) {
    links[static_cast<size_t>(visitor.rank)] = std::move(visitor.socket);
  }
  return links;
}

}  // namespace

std::unique_ptr<Communicator> ConnectRanks(int ranks, const Launcher& launcher,
                                           const TcpOptions& options) {
  Check(launcher.size == ranks, "[", launcher.name, "] expected ", ranks,
        " ranks, the product of the mesh, got WORLD_SIZE ", launcher.size);
  return std::make_unique<TcpRanks>(launcher.rank,
                                    ConnectAll(launcher, options.patience),
                                    options.message_bytes);
}

}  // namespace onnx_fp8
