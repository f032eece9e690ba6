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
#include "base/hash.h"
#include "collectives/heartbeat.h"
#include "collectives/place.h"
#include "collectives/rendezvous.h"

namespace onnx_fp8 {
namespace {

// A rank answers when it has connected itself to all before it.
constexpr std::chrono::seconds kTimeToConnect{30};
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

// How this rank reaches the others.
struct JobLinks {
  std::vector<Socket> links;  // by rank; this rank's is closed
  std::vector<std::string> places;
  std::string address;  // of this rank
  std::string secret;
  Say say;
};

class TcpRanks : public Communicator {
 public:
  // All ranks of the job.
  TcpRanks(int rank, JobLinks job, size_t message_bytes)
      : Communicator(message_bytes),
        job_(*this),
        rank_(rank),
        members_(job.links.size()),
        links_(std::move(job.links)),
        exceptions_(std::uncaught_exceptions()) {
    std::iota(members_.begin(), members_.end(), size_t{0});
    heartbeat_.emplace(*this, HeartbeatOptions{.address = job.address,
                                               .secret = job.secret,
                                               .say = job.say});
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

// Moves as many bytes as it can without waiting.
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

// A connection of this rank to each other rank. A rank connects to the ranks
// before it; the ranks after it connect to it.
JobLinks ConnectAll(const Launcher& launcher, const TcpOptions& options) {
  JobLinks job;
  // Strangers may come to each of the places where this rank listens.
  job.say = [say = options.say,
             told = std::make_shared<bool>(false)](const std::string& text) {
    if (!std::exchange(*told, true) && say) say(text);
  };
  Place place;
  Socket listener;
  {
    const JobSecret secret(launcher, options.secret);
    MetRanks meeting = MeetRanks(
        launcher, secret,
        [&](const std::string& address) {
          job.address = address;
          listener = ListenAtPlace(address, &place);
          return Text(place);
        },
        options.patience, job.say);
    job.secret = std::move(meeting.secret);
    job.places = std::move(meeting.texts);
  }
  const Pact pact = {job.secret, Channel::kData, Hash(launcher.meeting->job)};
  job.links.resize(job.places.size());
  for (int r = 0; r < launcher.rank; ++r) {
    const auto at = static_cast<size_t>(r);
    job.links[at] =
        ConnectToPlace(ParsePlace(job.places[at]), pact,
                       {launcher.size, launcher.rank, r}, kTimeToConnect);
    Check(job.links[at].open(), "[TCP] rank ", launcher.rank,
          " cannot reach rank ", r, " at ", job.places[at]);
  }
  const int missing = launcher.size - launcher.rank - 1;
  Reception reception(std::move(listener), pact, launcher.rank, 0, job.say);
  std::map<int, Socket> others =
      AcceptRanks(reception, launcher.size, launcher.rank + 1, launcher.size,
                  kTimeToConnect);
  Check(std::ssize(others) == missing, "[TCP] rank ", launcher.rank,
        " expected connections of ", missing, " ranks, got ", others.size());
  for (auto& [rank, socket] : others) {
    job.links[static_cast<size_t>(rank)] = std::move(socket);
  }
  return job;
}

}  // namespace

std::unique_ptr<Communicator> ConnectRanks(int ranks, const Launcher& launcher,
                                           const TcpOptions& options) {
  Check(launcher.size == ranks, "[", launcher.name, "] expected ", ranks,
        " ranks, the product of the mesh, got WORLD_SIZE ", launcher.size);
  return std::make_unique<TcpRanks>(
      launcher.rank, ConnectAll(launcher, options), options.message_bytes);
}

}  // namespace onnx_fp8
