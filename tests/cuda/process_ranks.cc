// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/process_ranks.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tests/cuda/emulation/rank_meeting.h"

namespace onnx_fp8 {
namespace {

using emulation::RankMeeting;

class ProcessRank : public Communicator {
 public:
  ProcessRank(RankMeeting& meeting, int rank, int size)
      : meeting_(meeting), rank_(rank), size_(size) {
    meeting_.Join(rank);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Barrier() override {
    meeting_.Meet(nullptr, 0, [](const RankMeeting::DataOf&) {});
  }
  void Abort(const std::string&) override {}

 protected:
  void Gather(const void* send, void* receive, size_t bytes) override {
    meeting_.Meet(send, bytes, [&](const RankMeeting::DataOf& data) {
      for (int r = 0; r < size_; ++r) Take(data(r), receive, r, bytes);
    });
  }
  void Exchange(const void* send, void* receive, size_t bytes) override {
    const size_t mine = static_cast<size_t>(rank_) * bytes;
    meeting_.Meet(send, static_cast<size_t>(size_) * bytes,
                  [&](const RankMeeting::DataOf& data) {
                    for (int r = 0; r < size_; ++r) {
                      Take(data(r) + mine, receive, r, bytes);
                    }
                  });
  }
  void Send(void* data, size_t bytes, int root) override {
    meeting_.Meet(data, bytes, [&](const RankMeeting::DataOf& of) {
      std::memcpy(data, of(root), bytes);
    });
  }

 private:
  static void Take(const std::byte* from, void* to, int r, size_t bytes) {
    std::memcpy(static_cast<std::byte*>(to) + static_cast<size_t>(r) * bytes,
                from, bytes);
  }

  RankMeeting& meeting_;
  int rank_, size_;
};

// Children of a test that was stopped stop, too.
[[noreturn]] void RunRank(Communicator& ranks, int output,
                          const std::function<void(Communicator&)>& rank) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string text;
  try {
    rank(ranks);
    if (testing::Test::HasFailure()) text = "its checks failed";
  } catch (const std::exception& error) {
    text = error.what();
  }
  if (!text.empty()) text = Concat("rank ", ranks.rank(), ": ", text, "\n");
  if (write(output, text.data(), text.size()) < 0) _exit(2);
  fflush(nullptr);
  _exit(0);
}

}  // namespace

std::string RunProcesses(int size,
                         const std::function<void(Communicator&)>& rank) {
  RankMeeting meeting(size);
  std::vector<pid_t> children;
  std::vector<int> outputs;
  fflush(nullptr);
  for (int r = 0; r < size; ++r) {
    int ends[2];
    Check(pipe(ends) == 0, "no pipe for a rank");
    const pid_t child = fork();
    Check(child >= 0, "no process for a rank");
    if (child == 0) {
      ProcessRank ranks(meeting, r, size);
      RunRank(ranks, ends[1], rank);
    }
    close(ends[1]);
    children.push_back(child);
    outputs.push_back(ends[0]);
  }
  std::string errors;
  for (int r = 0; r < size; ++r) {
    char part[4096];
    const auto at = static_cast<size_t>(r);
    for (ssize_t n; (n = read(outputs[at], part, sizeof part)) > 0;) {
      errors.append(part, static_cast<size_t>(n));
    }
    close(outputs[at]);
    int status = 0;
    waitpid(children[at], &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      errors += Concat("rank ", r, ": died\n");
    }
  }
  return errors;
}

}  // namespace onnx_fp8
