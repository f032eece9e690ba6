// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>

namespace onnx_fp8::emulation {

// Memory in which processes show each other their data. It has no name: nothing
// of it is left when they end, in whatever way.
class RankMeeting {
 public:
  static constexpr int kMostRanks = 8;
  static constexpr size_t kMostBytes = size_t{64} << 20;  // of a rank

  // A new one of `ranks` ranks, for this process and its later children.
  explicit RankMeeting(int ranks);
  // The meeting of another process.
  RankMeeting(pid_t process, int file);
  ~RankMeeting();
  RankMeeting(const RankMeeting&) = delete;
  RankMeeting& operator=(const RankMeeting&) = delete;

  int file() const { return file_; }
  void SetRanks(int ranks);
  // This process is that rank from now on.
  void Join(int rank);
  // Shows `bytes` of data, waits for the others, and calls `read` with a
  // function that finds the data of a rank. Returns when all ranks have read.
  // Errors: another rank has ended.
  using DataOf = std::function<const std::byte*(int)>;
  void Meet(const void* data, size_t bytes,
            const std::function<void(const DataOf&)>& read);

 private:
  struct Shared;
  void Map();
  void Wait();

  int file_ = -1;
  int rank_ = 0;
  Shared* shared_ = nullptr;
};

}  // namespace onnx_fp8::emulation
