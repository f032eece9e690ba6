// SPDX-License-Identifier: Apache-2.0
//
// The emulated NCCL finds the mistakes of its callers.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "collectives/communicator.h"
#include "providers/cuda/collectives/nccl.h"
#include "providers/cuda/collectives/nccl_group.h"
#include "tests/cuda/emulation_test/child.h"
#include "tests/cuda/process_ranks.h"

namespace onnx_fp8::emulation_test {
namespace {

using cuda::kNcclFloat;
using cuda::kNcclInt32;
using cuda::kNcclInvalidArgument;
using cuda::kNcclSuccess;
using cuda::kNcclSum;
using cuda::NcclComm;
using cuda::NcclFunctions;
using cuda::NcclType;

struct NcclOperand {
  NcclOperand() {
    cudaMalloc(reinterpret_cast<void**>(&data), 256);
    cudaMemset(data, 0, 256);
    cudaDeviceSynchronize();
  }
  float* data = nullptr;
};

using Call = void (*)(int rank, NcclComm comm, float* x);

// What two ranks write when rank r calls call(r, …) and waits.
std::string TextOfRanks(Call call) {
  return TextOfChild([=] {
    RunProcesses(2, [=](Communicator& ranks) {
      cuda::NcclGroup group(ranks);
      NcclOperand x;
      call(ranks.rank(), group.comm(), x.data);
      cudaDeviceSynchronize();
    });
  });
}

void Sum(NcclComm comm, float* x, size_t count, NcclType type = kNcclFloat) {
  EXPECT_EQ(NcclFunctions().AllReduce(x, x, count, type, kNcclSum, comm,
                                      cudaStreamLegacy),
            kNcclSuccess);
}

TEST(EmulatedNccl, OtherCounts) {
  const std::string text = TextOfRanks([](int rank, NcclComm comm, float* x) {
    Sum(comm, x, rank == 0 ? 4 : 8);
  });
  EXPECT_NE(text.find("rank 0 calls ncclAllReduce of 4 elements"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 1 calls ncclAllReduce of 8 elements"),
            std::string::npos)
      << text;
}

TEST(EmulatedNccl, OtherTypes) {
  const std::string text = TextOfRanks([](int rank, NcclComm comm, float* x) {
    Sum(comm, x, 4, rank == 0 ? kNcclFloat : kNcclInt32);
  });
  EXPECT_NE(text.find("rank 1 calls ncclAllReduce of 4 elements of type 2"),
            std::string::npos)
      << text;
}

TEST(EmulatedNccl, AnotherOrder) {
  const std::string text = TextOfRanks([](int rank, NcclComm comm, float* x) {
    for (int i = 0; i < 2; ++i) {
      if (i == rank) {
        Sum(comm, x, 4);
      } else {
        NcclFunctions().Broadcast(x, x, 4, kNcclFloat, 0, comm,
                                  cudaStreamLegacy);
      }
    }
  });
  EXPECT_NE(text.find("rank 0 calls ncclAllReduce"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 calls ncclBroadcast"), std::string::npos) << text;
}

TEST(EmulatedNccl, RefusesHostMemoryAndOverlaps) {
  const std::string errors = RunProcesses(2, [](Communicator& ranks) {
    cuda::NcclGroup group(ranks);
    NcclOperand x;
    float host[4] = {};
    const auto& nccl = NcclFunctions();
    EXPECT_EQ(nccl.AllReduce(host, x.data, 4, kNcclFloat, kNcclSum,
                             group.comm(), cudaStreamLegacy),
              kNcclInvalidArgument);
    EXPECT_EQ(nccl.AllReduce(x.data, x.data + 1, 4, kNcclFloat, kNcclSum,
                             group.comm(), cudaStreamLegacy),
              kNcclInvalidArgument);
    EXPECT_EQ(nccl.AllReduce(x.data, x.data, 4, kNcclFloat, kNcclSum, nullptr,
                             cudaStreamLegacy),
              kNcclInvalidArgument);
  });
  EXPECT_EQ(errors, "");
}

// Nothing runs before something waits for the stream.
TEST(EmulatedNccl, WaitsForTheStream) {
  const std::string errors = RunProcesses(2, [](Communicator& ranks) {
    cuda::NcclGroup group(ranks);
    NcclOperand x;
    if (ranks.rank() == 0) {  // a call that waited for rank 1 would never end
      Sum(group.comm(), x.data, 4);
      ranks.Barrier();
    } else {
      ranks.Barrier();
      Sum(group.comm(), x.data, 4);
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  });
  EXPECT_EQ(errors, "");
}

}  // namespace
}  // namespace onnx_fp8::emulation_test
