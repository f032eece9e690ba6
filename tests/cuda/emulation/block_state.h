// SPDX-License-Identifier: Apache-2.0
//
// The block that runs, for the files that make it run.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <vector>

#include "tests/cuda/emulation/blocks.h"
#include "tests/cuda/emulation/device_language.h"
#include "tests/cuda/emulation/fibers.h"

namespace onnx_fp8::emulation {

// By cp.async, and not yet waited for.
struct AsyncCopy {
  void* to;
  const void* from;
  size_t bytes, zeros, group;
};

struct DeviceThread {
  Context context;
  uint3 index = {};
  uint32_t id = 0;  // within the block
  bool begun = false;
  std::vector<AsyncCopy> copies;
  size_t groups = 0;  // committed ones
};

// Lanes that wait for each other.
struct Meeting {
  unsigned mask = 0, arrived = 0;
  Collective kind = Collective::kSync;
};

struct Warp {
  unsigned lanes = 0;  // that exist
  uint32_t epoch = 0;  // __syncwarps so far
  std::vector<Meeting> meetings;
  // What a lane gives, whose value it asks for, and what it gets.
  uint64_t value[32], result[32];
  unsigned from[32];
};

struct BlockState {
  const Grid* grid = nullptr;
  pthread_t host_thread = {};
  uint32_t launch = 0, run = 0;  // numbers of this launch and of this block
  uint32_t threads_in_block = 0, begun = 0, ended = 0;
  uint32_t epoch = 0;  // barriers of the block so far
  bool failed = false;
  std::vector<DeviceThread> threads;
  std::vector<Warp> warps;
  std::vector<DeviceThread*> at_barrier;
  uint32_t votes[2] = {};  // of __syncthreads_count, by the epoch's parity
  DeviceThread* current = nullptr;

  Warp& warp_of(const DeviceThread& t) { return warps[t.id / 32]; }
};

extern BlockState block;

// Other threads run until something makes this one ready. REQUIRES: it is
// current.
void WaitForOthers(DeviceThread& me);
void MakeReady(DeviceThread& thread);
bool OnDeviceStack(const void* p);

// Makes the copies of the first groups.
void FinishCopies(DeviceThread& thread, size_t groups);

}  // namespace onnx_fp8::emulation
