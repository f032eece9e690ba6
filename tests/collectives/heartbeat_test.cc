// SPDX-License-Identifier: Apache-2.0
//
// Heartbeats of ranks that are threads; tests/python/test_ranks.py kills and
// stops processes.
#include "collectives/heartbeat.h"

#include <gtest/gtest.h>

#include <condition_variable>

#include "base/check.h"
#include "tests/support/thread_ranks.h"

namespace onnx_fp8 {
namespace {

using std::chrono::milliseconds;

// The line with which each rank's heartbeat ends it.
class Ends {
 public:
  explicit Ends(size_t ranks) : lines_(ranks) {}

  HeartbeatOptions OptionsOf(size_t rank) {
    HeartbeatOptions options;
    options.beat = milliseconds(10);
    options.children = 2;
    options.end = [this, rank](const std::string& line) {
      std::lock_guard lock(mutex_);
      lines_[rank] = line;
      changed_.notify_all();
    };
    return options;
  }

  // The line of a rank once there is one.
  std::string WaitFor(size_t rank) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20),
                      [&] { return !lines_[rank].empty(); });
    return lines_[rank];
  }

  // REQUIRES: the heartbeats have ended.
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

TEST(Heartbeat, RanksThatFinishAreNoFault) {
  Ends ends(5);
  RunRanks(5, [&](Communicator& ranks) {
    const auto rank = static_cast<size_t>(ranks.rank());
    Heartbeat heartbeat(ranks, ends.OptionsOf(rank));
    // Longer than a silence, and the ranks finish at different times.
    std::this_thread::sleep_for(milliseconds(150 + 20 * ranks.rank()));
    heartbeat.Finish();
  });
  EXPECT_EQ(ends.lines(), std::vector<std::string>(5));
}

// A rank of a tree of three levels ends without a word. All others learn it,
// with its number.
TEST(Heartbeat, ARankThatVanishesIsNamedOnAll) {
  for (size_t failing : {0, 1, 4}) {
    Ends ends(5);
    RunRanks(5, [&](Communicator& ranks) {
      const auto rank = static_cast<size_t>(ranks.rank());
      Heartbeat heartbeat(ranks, ends.OptionsOf(rank));
      ranks.Barrier();
      if (rank == failing) return;
      const std::string line = ends.WaitFor(rank);
      EXPECT_TRUE(line.starts_with(Concat("rank ", failing, " of 5 (")))
          << line;
      EXPECT_TRUE(line.ends_with("): the process was killed or has crashed"))
          << line;
    });
  }
}

TEST(Heartbeat, AnErrorIsSaidOnAll) {
  Ends ends(4);
  RunRanks(4, [&](Communicator& ranks) {
    const auto rank = static_cast<size_t>(ranks.rank());
    Heartbeat heartbeat(ranks, ends.OptionsOf(rank));
    ranks.Barrier();
    if (rank == 2) return heartbeat.Abort("the disk is full");
    const std::string line = ends.WaitFor(rank);
    EXPECT_TRUE(line.starts_with("rank 2 of 4 (")) << line;
    EXPECT_TRUE(line.ends_with("): the disk is full")) << line;
  });
}

}  // namespace
}  // namespace onnx_fp8
