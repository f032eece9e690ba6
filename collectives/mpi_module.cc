// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi_module.h"

#include <mpi.h>
#include <time.h>

#include <vector>

namespace onnx_fp8 {
namespace {

// A rank polls for a few microseconds and then sleeps between polls. The pause
// is short beside a message of a megabyte. (A rank that yields its core instead
// waits for whole time slices of other programs.)
constexpr int kPolls = 200;
constexpr long kPauseNanoseconds = 20'000;

// By default MPI ends the job at an error, without a word of what failed.
const char* Text(int error) {
  if (error == MPI_SUCCESS) return nullptr;
  static char text[MPI_MAX_ERROR_STRING + 1];
  int length = 0;
  MPI_Error_string(error, text, &length);
  text[length] = '\0';
  return text;
}

// Waits without taking the core from other ranks for long: there may be more
// ranks than cores. MPI's own calls spin.
const char* Finish(int started, MPI_Request request) {
  if (const char* error = Text(started)) return error;
  for (int polls = 0;; ++polls) {
    int done = 0;
    const char* error = Text(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (error || done) return error;
    if (polls < kPolls) continue;
    const timespec pause = {0, kPauseNanoseconds};
    nanosleep(&pause, nullptr);
  }
}

// Groups by their id.
std::vector<MPI_Comm> groups;

MPI_Comm Of(const MpiGroup& group) {
  return groups[static_cast<size_t>(group.id)];
}

const char* Gather(const MpiGroup& group, const void* send, void* receive,
                   size_t bytes) {
  const int n = static_cast<int>(bytes);
  MPI_Request request;
  const int started = MPI_Iallgather(send, n, MPI_BYTE, receive, n, MPI_BYTE,
                                     Of(group), &request);
  return Finish(started, request);
}

const char* Exchange(const MpiGroup& group, const void* send, void* receive,
                     size_t bytes) {
  const int n = static_cast<int>(bytes);
  MPI_Request request;
  const int started = MPI_Ialltoall(send, n, MPI_BYTE, receive, n, MPI_BYTE,
                                    Of(group), &request);
  return Finish(started, request);
}

const char* Broadcast(const MpiGroup& group, void* data, size_t bytes,
                      int root) {
  MPI_Request request;
  const int started = MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, root,
                                 Of(group), &request);
  return Finish(started, request);
}

const char* Barrier(const MpiGroup& group) {
  MPI_Request request;
  const int started = MPI_Ibarrier(Of(group), &request);
  return Finish(started, request);
}

// Takes up a group, whose errors shall be returned.
const char* Add(MPI_Comm ranks, MpiGroup* group) {
  if (const char* error =
          Text(MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN))) {
    return error;
  }
  group->id = static_cast<int>(groups.size());
  groups.push_back(ranks);
  if (const char* error = Text(MPI_Comm_rank(ranks, &group->rank))) {
    return error;
  }
  return Text(MPI_Comm_size(ranks, &group->size));
}

const char* Split(const MpiGroup& group, int color, MpiGroup* part) {
  MPI_Comm ranks;
  if (const char* error =
          Text(MPI_Comm_split(Of(group), color, group.rank, &ranks))) {
    return error;
  }
  return Add(ranks, part);
}

void Abort() { MPI_Abort(MPI_COMM_WORLD, 1); }

const char* Finalize() { return Text(MPI_Finalize()); }

const char* Open(MpiModule* module) {
  // Any thread may call MPI, one at a time.
  int provided = 0;
  if (const char* error = Text(MPI_Init_thread(
          nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided))) {
    return error;
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    return "this MPI can only be called by the first thread of a process";
  }
  if (const char* error = Add(MPI_COMM_WORLD, &module->world)) return error;
  static char library[MPI_MAX_LIBRARY_VERSION_STRING + 1];
  int length = 0;
  MPI_Get_library_version(library, &length);
  library[length] = '\0';
  module->library = library;
  module->gather = Gather;
  module->exchange = Exchange;
  module->broadcast = Broadcast;
  module->barrier = Barrier;
  module->split = Split;
  module->abort = Abort;
  module->finalize = Finalize;
  return nullptr;
}

}  // namespace
}  // namespace onnx_fp8

extern "C" __attribute__((visibility("default"))) const char* onnx_fp8_open_mpi(
    onnx_fp8::MpiModule* module) {
  return onnx_fp8::Open(module);
}
