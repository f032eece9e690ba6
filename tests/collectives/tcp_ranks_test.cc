// SPDX-License-Identifier: Apache-2.0
//
// Ranks over TCP that are threads of this process;
// tests/python/test_torchrun.py runs processes.
#include "collectives/tcp_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "collectives/agreement.h"
#include "collectives/rendezvous.h"
#include "collectives/tcp.h"
#include "tests/support/collective_cases.h"

namespace onnx_fp8 {
namespace {

using std::chrono::milliseconds;
using RankErrors = std::vector<std::string>;

constexpr char kSecret[] = "a secret of the job";

// A port that is free now.
int FreePort() {
  int port = 0;
  Listen(kLoopback, &port);
  return port;
}

Launcher RankOf(int size, int rank, int port) {
  return {"torchrun", size, rank,
          MeetingPoint{.host = "127.0.0.1", .port = port, .job = "a"}};
}

// Runs `rank` on a thread for each launcher. The errors of the ranks, or "".
RankErrors OnThreads(const std::vector<Launcher>& launchers,
                     const std::function<void(const Launcher&)>& rank) {
  RankErrors errors(launchers.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < launchers.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        rank(launchers[i]);
      } catch (const Error& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

RankErrors RunSize(int size, const std::function<void(Communicator&)>& rank,
                   size_t message_bytes = Communicator::kMessageBytes) {
  const int port = FreePort();
  std::vector<Launcher> launchers;
  for (int r = 0; r < size; ++r) launchers.push_back(RankOf(size, r, port));
  return OnThreads(launchers, [&](const Launcher& launcher) {
    rank(*ConnectRanks(size, launcher,
                       {.patience = std::chrono::seconds(30),
                        .message_bytes = message_bytes,
                        .secret = {.given = size % 2 ? "" : kSecret}}));
  });
}

TEST(TcpRanksTest, EveryOperation) {
  for (int size : {2, 3, 5}) {
    for (size_t message_bytes : {Communicator::kMessageBytes, size_t{200}}) {
      EXPECT_EQ(RunSize(
                    size,
                    [&](Communicator& ranks) {
                      EXPECT_EQ(ranks.size(), size);
                      ExpectAllReduce(ranks);
                      ExpectAllGather(ranks);
                      ExpectReduceScatter(ranks);
                      ExpectBroadcast(ranks);
                    },
                    message_bytes),
                RankErrors(static_cast<size_t>(size)));
    }
    EXPECT_EQ(RunSize(size, ExpectWireBytes),
              RankErrors(static_cast<size_t>(size)));
  }
}

// Groups share the connections of all ranks.
TEST(TcpRanksTest, Groups) {
  EXPECT_EQ(RunSize(5,
                    [](Communicator& ranks) {
                      const auto group = ranks.Split(ranks.rank() % 2);
                      EXPECT_EQ(group->size(), ranks.rank() % 2 ? 2 : 3);
                      EXPECT_EQ(group->rank(), ranks.rank() / 2);
                      for (Communicator* some : {group.get(), &ranks}) {
                        ExpectAllReduce(*some);
                        ExpectAllGather(*some);
                        ExpectReduceScatter(*some);
                        ExpectBroadcast(*some);
                      }
                      const auto alone = group->Split(group->rank());
                      EXPECT_EQ(alone->size(), 1);
                      ExpectAllReduce(*alone);
                    }),
            RankErrors(5));
}

// More than fits into the buffers of a socket: all ranks send at first.
TEST(TcpRanksTest, LargeMessages) {
  constexpr size_t kCount = size_t{1} << 22;
  EXPECT_EQ(RunSize(3,
                    [](Communicator& ranks) {
                      const int r = ranks.rank();
                      std::vector<int32_t> x(kCount);
                      for (size_t i = 0; i < kCount; ++i) {
                        x[i] = static_cast<int32_t>(i) + r;
                      }
                      ranks.AllReduce(Reduction::kSum, DType::kInt32, x.data(),
                                      x.data(), kCount);
                      bool equal = true;
                      for (size_t i = 0; i < kCount; ++i) {
                        equal &= x[i] == 3 * static_cast<int32_t>(i) + 3;
                      }
                      EXPECT_TRUE(equal);
                      x.assign(kCount, r);
                      ranks.Broadcast(x.data(), kCount * sizeof x[0], 2);
                      EXPECT_EQ(std::ranges::count(x, 2),
                                static_cast<ptrdiff_t>(kCount));
                    }),
            RankErrors(3));
}

TEST(TcpRanksTest, Disagreement) {
  for (const std::string& error : RunSize(2, [](Communicator& ranks) {
         const std::vector<Fact> facts = {{"--lr", ranks.rank() ? "1" : "2"}};
         try {
           CheckAgreement(ranks, "ranks", facts);
         } catch (const Error& caught) {
           ranks.Barrier();  // no rank is lost before the other has its error
           EXPECT_STREQ(caught.what(),
                        "[ranks] expected --lr 2, as rank 0, got --lr 1 on "
                        "rank 1");
           return;
         }
         ADD_FAILURE() << "no error";
       })) {
    EXPECT_EQ(error, "");
  }
}

TEST(TcpRanksTest, AnotherSizeThanTheMesh) {
  const Launcher launcher = RankOf(2, 0, 1);
  try {
    ConnectRanks(3, launcher);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[torchrun] expected 3 ranks, the product of the mesh, got "
                 "WORLD_SIZE 2");
  }
}

// ---- where ranks meet

RankErrors Meet(const std::vector<Launcher>& launchers,
                milliseconds patience = std::chrono::seconds(30),
                const std::string& secret_text = "",
                std::vector<std::string>* said = nullptr) {
  return OnThreads(launchers, [&](const Launcher& launcher) {
    const std::string text = "text of job " + launcher.meeting->job + ", rank ";
    const JobSecret secret(launcher, {.given = secret_text, .insecure = true});
    Say say;
    if (launcher.rank == 0 && said) {
      say = [said](const std::string& line) { said->push_back(line); };
    }
    const auto [texts, used] = MeetRanks(
        launcher, secret,
        [&](const std::string& address) {
          EXPECT_EQ(address, "127.0.0.1");
          return Concat(text, launcher.rank);
        },
        patience, say);
    EXPECT_EQ(used, secret_text);
    ASSERT_EQ(std::ssize(texts), launcher.size);
    for (size_t r = 0; r < texts.size(); ++r) {
      EXPECT_EQ(texts[r], Concat(text, r));
    }
  });
}

TEST(RendezvousTest, OtherRanksAreMissing) {
  const int port = FreePort();
  const std::string at = Concat("127.0.0.1:", port);
  // Rank 1 learns the error of rank 0.
  EXPECT_EQ(Meet({RankOf(4, 0, port), RankOf(4, 1, port)}, milliseconds(500)),
            RankErrors(2, "[torchrun] expected 4 ranks at " + at +
                              " within 0.5 s, got none with RANK 2, 3"));
  EXPECT_EQ(Meet({RankOf(2, 1, port)}, milliseconds(200)),
            RankErrors(1, "[MASTER_PORT] expected rank 0 at " + at +
                              " within 0.2 s, got no answer on rank 1"));
  Launcher nowhere = RankOf(2, 1, port);
  nowhere.meeting->host = "host.invalid";
  EXPECT_EQ(
      Meet({nowhere}, milliseconds(0)),
      RankErrors(1,
                 Concat("[MASTER_ADDR] expected rank 0 at host.invalid:", port,
                        " within 0 s, got a host without an address "
                        "on rank 1")));
}

TEST(RendezvousTest, RanksThatDoNotFit) {
  int port = FreePort();
  constexpr std::chrono::seconds kPatience{30};
  EXPECT_EQ(
      Meet({RankOf(2, 0, port), RankOf(3, 1, port)}, kPatience, kSecret),
      RankErrors(2, "[WORLD_SIZE] expected 2, as rank 0, got 3 on rank 1"));
  port = FreePort();
  const RankErrors errors =
      Meet({RankOf(3, 0, port), RankOf(3, 1, port), RankOf(3, 1, port)},
           kPatience, kSecret);
  EXPECT_EQ(errors,
            RankErrors(3, "[RANK] expected one process with 1, got two"));
}

// Anybody may say that he is rank 77 of 78: he ends no job without a secret.
TEST(RendezvousTest, StrangersThatSayTheyAreRanks) {
  const int port = FreePort();
  std::vector<Launcher> launchers = {RankOf(2, 0, port), RankOf(78, 77, port),
                                     RankOf(2, 1, port)};
  std::vector<std::string> said;
  std::atomic<bool> stranger_is_gone = false;
  const RankErrors errors = OnThreads(launchers, [&](const Launcher& launcher) {
    const bool stranger = launcher.rank == 77;
    if (launcher.rank == 1) stranger_is_gone.wait(false);
    const RankErrors own =
        Meet({launcher}, std::chrono::seconds(30), "", &said);
    if (stranger) stranger_is_gone = true;
    stranger_is_gone.notify_all();
    Check(own[0].empty(), own[0]);
  });
  EXPECT_EQ(errors, (RankErrors{"",
                                "[WORLD_SIZE] expected 2, as rank 0, got 78 on "
                                "rank 77",
                                ""}));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(said[0].starts_with("rank 0 has dropped a connection from 127."));
}

TEST(RendezvousTest, AnotherSecret) {
  const int port = FreePort();
  const RankErrors errors = OnThreads(
      {RankOf(2, 0, port), RankOf(2, 1, port)}, [&](const Launcher& at) {
        const std::string secret =
            at.rank ? "another secret of a job" : kSecret;
        const RankErrors own = Meet({at}, milliseconds(700), secret);
        Check(own[0].empty(), own[0]);
      });
  EXPECT_EQ(errors[0], Concat("[torchrun] expected 2 ranks at 127.0.0.1:", port,
                              " within 0.7 s, got none with RANK 1"));
  EXPECT_TRUE(errors[1].ends_with(
                  "within 0.7 s, got one with another secret on rank 1") ||
              errors[1].ends_with("within 0.7 s, got no answer on rank 1"))
      << errors[1];
}

TEST(RendezvousTest, TheFileOfTheSecretIsMissing) {
  const Launcher launcher = RankOf(2, 1, 29500);
  const JobSecret secret(launcher, {.folder = "/no/folder"});
  try {
    MeetRanks(launcher, secret, {}, milliseconds(10));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[/no/folder/job_secret_29500] expected the job's secret, "
                 "which rank 0 leaves there, within 0.01 s, got no file on "
                 "rank 1: all ranks need one folder, or the variable "
                 "ONNX_FP8_JOB_SECRET");
  }
}

// Rank 0 listens at the named address alone.
TEST(RendezvousTest, TheNamedAddress) {
  int port = FreePort();
  Launcher first = RankOf(2, 0, port), second = RankOf(2, 1, port);
  first.meeting->host = "127.0.0.3";
  Launcher named = second;
  named.meeting->host = "127.0.0.3";
  // Nobody listens at another address of the machine.
  const RankErrors errors =
      OnThreads({first, second, named}, [&](const Launcher& launcher) {
        if (launcher.meeting->host == "127.0.0.1") {
          const RankErrors own = Meet({launcher}, milliseconds(300));
          EXPECT_TRUE(own[0].ends_with("got no answer on rank 1")) << own[0];
          return;
        }
        std::this_thread::sleep_for(milliseconds(launcher.rank ? 600 : 0));
        const JobSecret secret(launcher, {});
        MeetRanks(
            launcher, secret, [](const std::string&) { return ""; },
            std::chrono::seconds(30));
      });
  EXPECT_EQ(errors, RankErrors(3));
}

TEST(RendezvousTest, AnAddressOfAnotherMachine) {
  Launcher launcher = RankOf(2, 0, FreePort());
  launcher.meeting->host = "192.0.2.1";  // reserved for documents
  EXPECT_EQ(Meet({launcher}, milliseconds(10)),
            RankErrors(1,
                       "[MASTER_ADDR] expected an address of rank 0's "
                       "machine, got 192.0.2.1, which is another's"));
}

TEST(RendezvousTest, APortThatIsTaken) {
  int port = 0;
  const Socket taken = Listen(kLoopback, &port);
  EXPECT_EQ(
      Meet({RankOf(2, 0, port)}),
      RankErrors(1, Concat("[MASTER_PORT] expected a free port for rank 0, "
                           "got 127.0.0.1:",
                           port, ": Address already in use")));
}

// torchrun's agent holds the port. The ports after it may belong to a stranger
// who says nothing, and to another job.
TEST(RendezvousTest, PortsAfterTorchruns) {
  int port = 0;
  const Socket agent = Listen(kLoopback, &port);
  const Socket stranger = ListenAt(kLoopback, port + 1);
  std::vector<Launcher> launchers;
  for (const char* job : {"a", "b"}) {
    for (int r = 0; r < 3; ++r) {
      launchers.push_back(RankOf(3, r, port));
      launchers.back().meeting->port_is_taken = true;
      launchers.back().meeting->job = job;
    }
  }
  EXPECT_EQ(Meet(launchers), RankErrors(6));
}

}  // namespace
}  // namespace onnx_fp8
