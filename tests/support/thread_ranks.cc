// SPDX-License-Identifier: Apache-2.0
#include "tests/support/thread_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// What all ranks share.
class Meeting {
 public:
  explicit Meeting(int size) : calls_(static_cast<size_t>(size)) {}

  struct Call {
    std::string name;  // with its sizes, which must agree
    const std::byte* sent = nullptr;
  };

  // Waits until all ranks are there, calls `copy` with the calls of all ranks
  // and waits until all have done so.
  template <typename F>
  void Meet(int rank, Call call, F&& copy) {
    Put(rank, std::move(call));
    copy(calls_);
    Wait();
  }

  void Fail(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    changed_.notify_all();
    for (auto& [key, part] : parts_) part->Fail(reason_);
  }

  // The meeting of the `size` ranks whose call `split` has that color.
  Meeting& Part(int split, int color, int size) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Meeting>& part = parts_[{split, color}];
    if (!part) part = std::make_unique<Meeting>(size);
    return *part;
  }

  const std::string& reason() const { return reason_; }

 private:
  void Put(int rank, Call call) {
    {
      const std::lock_guard lock(mutex_);
      calls_[static_cast<size_t>(rank)] = std::move(call);
    }
    Wait();
    for (size_t r = 1; r < calls_.size(); ++r) {
      Check(calls_[r].name == calls_[0].name, "[ranks] rank 0 calls ",
            calls_[0].name, ", rank ", r, " calls ", calls_[r].name);
    }
  }

  void Wait() {
    std::unique_lock lock(mutex_);
    const size_t round = round_;
    if (++waiting_ == calls_.size()) {
      waiting_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || !reason_.empty(); });
    Check(round_ != round, reason_);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  size_t waiting_ = 0, round_ = 0;
  std::string reason_;
  std::map<std::pair<int, int>, std::unique_ptr<Meeting>> parts_;
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(Meeting& meeting, int rank, int size, size_t message_bytes)
      : Communicator(message_bytes),
        meeting_(meeting),
        rank_(rank),
        size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Barrier() override {
    meeting_.Meet(rank_, {"Barrier"}, [](const auto&) {});
  }
  void Abort(const std::string& reason) override { meeting_.Fail(reason); }

 protected:
  void Gather(const void* send, void* receive, size_t bytes) override {
    Copy("Gather", send, receive, bytes, 0);
  }
  void Exchange(const void* send, void* receive, size_t bytes) override {
    Copy("Exchange", send, receive, bytes, static_cast<size_t>(rank_) * bytes);
  }
  void Send(void* data, size_t bytes, int root) override {
    meeting_.Meet(rank_,
                  {Concat("Send of ", bytes, " from ", root),
                   static_cast<const std::byte*>(data)},
                  [&](const std::vector<Meeting::Call>& calls) {
                    if (rank_ == root) return;
                    std::memcpy(data, calls[static_cast<size_t>(root)].sent,
                                bytes);
                  });
  }
  std::unique_ptr<Communicator> MakeGroup(int color) override {
    std::vector<int> colors(static_cast<size_t>(size_));
    Gather(&color, colors.data(), sizeof color);
    const auto others = [&](int ranks) {
      return static_cast<int>(
          std::count(colors.begin(), colors.begin() + ranks, color));
    };
    Meeting& part = meeting_.Part(splits_++, color, others(size_));
    return std::make_unique<ThreadRank>(part, others(rank_), others(size_),
                                        message_bytes());
  }

 private:
  void Copy(const char* name, const void* send, void* receive, size_t bytes,
            size_t offset) {
    meeting_.Meet(
        rank_,
        {Concat(name, " of ", bytes), static_cast<const std::byte*>(send)},
        [&](const std::vector<Meeting::Call>& calls) {
          for (size_t r = 0; r < calls.size(); ++r) {
            std::memcpy(static_cast<std::byte*>(receive) + r * bytes,
                        calls[r].sent + offset, bytes);
          }
        });
  }

  Meeting& meeting_;
  int rank_, size_;
  int splits_ = 0;
};

}  // namespace

void RunRanks(int size, const std::function<void(Communicator&)>& rank,
              size_t message_bytes) {
  Meeting meeting(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      ThreadRank communicator(meeting, r, size, message_bytes);
      try {
        rank(communicator);
        // A rank that still calls others meets one that has returned.
        meeting.Meet(r, {"nothing more"}, [](const auto&) {});
      } catch (const std::exception& error) {
        meeting.Fail(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Check(meeting.reason().empty(), meeting.reason());
}

}  // namespace onnx_fp8
