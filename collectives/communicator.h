// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

enum class Reduction { kSum, kMax };

// Bytes of data that a rank has received from other ranks, by kind of call: a
// call adds ReceivedBytes.
struct WireBytes {
  int64_t all_reduce = 0;
  int64_t all_gather = 0;
  int64_t reduce_scatter = 0;
  int64_t broadcast = 0;

  bool operator==(const WireBytes&) const = default;
};

// The data of one tensor in a call. `count`: of y, or the bytes of a gather's
// x.
struct Transfer {
  const void* x;
  void* y;
  size_t count;
};

// One rank's view of a group of ranks. The ranks are processes, numbered from
// 0. A call of a collective returns when this rank has its result. All ranks of
// the group must make the same calls in the same order, with equal dtypes and
// counts; agreement.h compares these beforehand.
//
// Data lies on the host. A count is a number of elements. A sum adds the ranks'
// elements in the order of the ranks, in their dtype. Every rank therefore gets
// the same bits, whatever the transport does. A maximum is NaN if any of its
// elements is NaN.
//
// Sums and maxima exist for float, double, int32 and int64. Errors: another
// dtype; errors of the transport. A group with a failed call is of no use.
class Communicator {
 public:
  // The most bytes of a message to one rank. Longer data takes several
  // messages, because MPI counts the bytes of a message in an int.
  static constexpr size_t kMessageBytes = size_t{64} << 20;

  // REQUIRES: message_bytes >= 8.
  explicit Communicator(size_t message_bytes = kMessageBytes)
      : message_bytes_(message_bytes) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank gets in y (count) the sum or maximum of x (count) over the
  // ranks. y may be x.
  void AllReduce(Reduction reduction, DType dtype, const void* x, void* y,
                 size_t count) {
    const Transfer one = {x, y, count};
    AllReduce(reduction, dtype, {&one, 1});
  }
  // The same for several tensors, which travel as one.
  void AllReduce(Reduction reduction, DType dtype,
                 std::span<const Transfer> tensors);
  // Every rank gets in y (size() · bytes) the x (bytes) of each rank, one after
  // the other.
  void AllGather(const void* x, void* y, size_t bytes) {
    const Transfer one = {x, y, bytes};
    AllGather({&one, 1});
  }
  // The same for several tensors, which travel as one.
  void AllGather(std::span<const Transfer> tensors);
  // The ranks add up x (size() · count). Rank r gets block r of the sum in
  // y (count).
  void ReduceScatter(DType dtype, const void* x, void* y, size_t count) {
    const Transfer one = {x, y, count};
    ReduceScatter(dtype, {&one, 1});
  }
  void ReduceScatter(DType dtype, std::span<const Transfer> tensors);
  // Every rank gets the data (bytes) of rank `root`. REQUIRES: root < size().
  void Broadcast(void* data, size_t bytes, int root);
  // Returns when all ranks have called it.
  virtual void Barrier() = 0;

  // The group of the ranks that give the same `color` (at least 0), in the
  // order of their ranks. All ranks call it at the same time. wire_bytes() of
  // this group also counts the bytes of the new one. This group must outlive
  // the new one.
  std::unique_ptr<Communicator> Split(int color);

  // Ends the ranks of the job after an error of this rank. It may be called at
  // any time and may end this process too. The others say `reason`, or their
  // launcher does.
  virtual void Abort(const std::string& reason) = 0;

  // Bytes of this group and of the groups split from it.
  const WireBytes& wire_bytes() const { return *wire_bytes_; }
  // Counts bytes that came by other ways: a GPU's library.
  void AddWireBytes(const WireBytes& bytes);

 protected:
  // Messages of the transport, with at most `message_bytes` for each rank.
  // Every rank gets in `receive` (size() · bytes) the `send` (bytes) of each
  // rank, one after the other.
  virtual void Gather(const void* send, void* receive, size_t bytes) = 0;
  // Every rank sends block r of `send` to rank r, and gets that rank's block as
  // block r of `receive`. Both have size() · bytes.
  virtual void Exchange(const void* send, void* receive, size_t bytes) = 0;
  // Every rank gets the data (bytes) of rank `root`.
  virtual void Send(void* data, size_t bytes, int root) = 0;
  // Split's group. Errors: this transport has none.
  virtual std::unique_ptr<Communicator> MakeGroup(int color);

  size_t message_bytes() const { return message_bytes_; }

 private:
  // ReceivedBytes of this group.
  int64_t Received(std::string_view op, size_t count, size_t element) const;
  // The most bytes that a reduction sends to one rank in one message.
  size_t ReducedAtOnce() const;

  size_t message_bytes_;
  WireBytes own_bytes_;
  WireBytes* wire_bytes_ = &own_bytes_;  // of the group of all ranks
};

// The groups to which this rank belongs. The key is an axis of the mesh, such
// as "dp"; nodes name it in their attribute `group`. The communicators outlive
// the map.
using Groups = std::map<std::string, Communicator*, std::less<>>;

}  // namespace onnx_fp8
