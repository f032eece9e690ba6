// SPDX-License-Identifier: Apache-2.0
//
// The C interface of libonnx_fp8_mpi.so, the only part that is linked with MPI.
// load_mpi.h opens it. mpi_module.cc includes nothing else of ours.
#pragma once

#include <cstddef>

namespace onnx_fp8 {

// A group of ranks, and this rank among them.
struct MpiGroup {
  int id;  // the module's own number
  int rank, size;
};

// Functions return null, or the text of an error that lives until the next
// call. Data lies on the host; `bytes` fit into an int.
struct MpiModule {
  MpiGroup world;       // all ranks
  const char* library;  // name and version of MPI
  const char* (*gather)(const MpiGroup& group, const void* send, void* receive,
                        size_t bytes);
  const char* (*exchange)(const MpiGroup& group, const void* send,
                          void* receive, size_t bytes);
  const char* (*broadcast)(const MpiGroup& group, void* data, size_t bytes,
                           int root);
  const char* (*barrier)(const MpiGroup& group);
  // The ranks of `group` that give the same color. MPI frees the new group at
  // its end.
  const char* (*split)(const MpiGroup& group, int color, MpiGroup* part);
  // Ends all ranks; does not return.
  void (*abort)();
  // All ranks call it, last.
  const char* (*finalize)();
};

// Initializes MPI and fills in `module`. A process may call it once.
using OpenMpiModule = const char* (*)(MpiModule* module);
inline constexpr char kOpenMpiModule[] = "onnx_fp8_open_mpi";
inline constexpr char kMpiModuleFile[] = "libonnx_fp8_mpi.so";

}  // namespace onnx_fp8
