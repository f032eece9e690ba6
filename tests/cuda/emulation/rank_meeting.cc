// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/rank_meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>

#include "base/check.h"

namespace onnx_fp8::emulation {
namespace {

// A process that ended stays as a zombie until its parent asks for it.
bool HasEnded(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(") ");
  return name_end == std::string::npos || text[name_end + 2] == 'Z' ||
         text[name_end + 2] == 'X';
}

}  // namespace

struct RankMeeting::Shared {
  std::atomic<int> ranks, arrived;
  std::atomic<uint64_t> round;
  std::atomic<pid_t> processes[kMostRanks];
  std::byte* data(int rank) {
    return reinterpret_cast<std::byte*>(this) + 4096 +
           static_cast<size_t>(rank) * kMostBytes;
  }
};

RankMeeting::RankMeeting(int ranks) {
  file_ = memfd_create("ranks", MFD_CLOEXEC);
  Check(file_ >= 0 &&
            ftruncate(file_,
                      static_cast<off_t>(4096 + kMostRanks * kMostBytes)) == 0,
        "no memory for ranks");
  Map();
  SetRanks(ranks);
}

RankMeeting::RankMeeting(pid_t process, int file) {
  const std::string path =
      "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  Check(file_ >= 0, "no memory of process ", process);
  Map();
}

RankMeeting::~RankMeeting() {
  munmap(shared_, 4096 + kMostRanks * kMostBytes);
  close(file_);
}

void RankMeeting::Map() {
  void* memory = mmap(nullptr, 4096 + kMostRanks * kMostBytes,
                      PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  Check(memory != MAP_FAILED, "no memory for ranks");
  shared_ = static_cast<Shared*>(memory);
}

void RankMeeting::SetRanks(int ranks) {
  Check(ranks <= kMostRanks, "expected at most 8 ranks, got ", ranks);
  shared_->ranks = ranks;
}

void RankMeeting::Join(int rank) {
  rank_ = rank;
  shared_->processes[rank] = getpid();
}

void RankMeeting::Wait() {
  const uint64_t round = shared_->round;
  if (++shared_->arrived == shared_->ranks) {
    shared_->arrived = 0;
    ++shared_->round;
    return;
  }
  for (int polls = 1; shared_->round == round; ++polls) {
    usleep(polls < 100 ? 20 : 200);
    if (polls % 100 != 0) continue;
    for (int r = 0; r < shared_->ranks; ++r) {
      const pid_t process = shared_->processes[r];
      if (process == 0 || !HasEnded(process)) continue;
      Check(shared_->round != round, "rank ", r, " has ended");
    }
  }
}

void RankMeeting::Meet(const void* data, size_t bytes,
                       const std::function<void(const DataOf&)>& read) {
  Check(bytes <= kMostBytes, "expected at most ", kMostBytes,
        " bytes of a rank, got ", bytes);
  if (bytes > 0) std::memcpy(shared_->data(rank_), data, bytes);
  Wait();
  read([this](int rank) { return shared_->data(rank); });
  Wait();
}

}  // namespace onnx_fp8::emulation
