// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/handshake.h"
#include "collectives/tcp.h"

namespace onnx_fp8 {

// Prints the line and ends this process with exit code 1. The others have half
// a second to print theirs: a launcher ends all ranks when the first one ends.
[[noreturn]] void EndProcess(const std::string& line);

struct HeartbeatOptions {
  std::chrono::milliseconds beat{500};
  int silent_beats = 10;  // a rank that is silent for longer is at fault
  int children = 64;      // of a rank in the tree of ranks
  // Where this rank listens for others. "": on the loopback, or on all networks
  // if there are ranks on other machines.
  std::string address = {};
  // The job's secret. "": rank 0 draws one and tells it through the
  // communicator.
  std::string secret = {};
  Say say = {};  // tells of strangers
  // Ends this rank after the fault of another one.
  std::function<void(const std::string& line)> end = EndProcess;
};

// Finds ranks that have died or were stopped. A thread of each rank sends beats
// to the rank above it in a tree and to the ranks below it, over TCP. The
// thread does nothing else, so a rank may compute or save for as long as it
// likes.
//
// A rank is at fault if its connection ends before it has finished, or if it is
// silent. A rank counts its own beats to measure the silence of others: a job
// that is stopped and continued as a whole misses nothing. The ranks pass a
// fault on through the tree. Each of them ends with a line
//   rank 3 of 4 (host, pid 123): the process was killed or has crashed
class Heartbeat {
 public:
  // All ranks call it. Errors: a rank can't be reached over TCP.
  explicit Heartbeat(Communicator& ranks, HeartbeatOptions options = {});
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  // Without Finish or Abort this rank is at fault.
  ~Heartbeat();

  // Says that this rank has done its work. Returns when all other ranks have
  // done their work.
  void Finish();
  // Ends the other ranks after an error of this one. It prints the line of this
  // rank and returns when the others had time to print it.
  void Abort(const std::string& reason);

 private:
  struct Link {
    int rank;
    Socket socket;
    std::string received;  // less than a message
    int silent = 0;        // beats
    bool finished = false;
  };
  enum class Kind : uint32_t { kBeat, kFinished, kFault };
  // The beginning of each message. In a message of a fault, `bytes` of text
  // follow it.
  struct Header {
    Kind kind;
    uint32_t rank, bytes;
  };

  void Join(Communicator& ranks);
  void Beat();
  void Wake();
  bool AllFinished() const;
  // Returns at `until`, or earlier: after messages of other ranks, or a call of
  // Finish or Abort.
  void Wait(std::chrono::steady_clock::time_point until);
  void Receive(Link& link);
  void Read(Link& link);
  void Send(Kind kind, int rank, const std::string& text = "");
  void Fault(int rank, const std::string& reason);
  std::string Line(int rank, const std::string& reason) const;

  HeartbeatOptions options_;
  int rank_, size_;
  std::vector<std::string> names_;  // of the ranks: host and process
  std::vector<Link> links_;
  Socket wake_;
  std::mutex mutex_;  // guards the three below
  bool finishes_ = false, closes_ = false;
  std::optional<std::string> aborts_;
  bool failed_ = false;  // of the thread
  std::thread thread_;
};

}  // namespace onnx_fp8
