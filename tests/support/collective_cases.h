// SPDX-License-Identifier: Apache-2.0
//
// Every operation of a communicator against a plain loop. Each rank computes
// from the number of a rank the data that the rank has.
#pragma once

#include "collectives/communicator.h"

namespace onnx_fp8 {

// Counts of elements: none, fewer than ranks, uneven, many. Every rank calls
// these; they use gtest's EXPECT.
void ExpectAllReduce(Communicator& ranks);
void ExpectAllGather(Communicator& ranks);
void ExpectReduceScatter(Communicator& ranks);
void ExpectBroadcast(Communicator& ranks);
// The bytes of each kind of call.
void ExpectWireBytes(Communicator& ranks);

}  // namespace onnx_fp8
