// SPDX-License-Identifier: Apache-2.0
//
// An executor runs collectives beside other steps. The ops have kernels that
// meet: a collective ends only when another step has run.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/support/forwarding_provider.h"

namespace onnx_fp8 {
namespace {

struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  bool signaled = false, timed_out = false;
  std::vector<std::thread::id> collectives;
  bool fails = false;
  std::string order;
};
Meeting* meeting;

void CopyKernel(KernelContext& ctx) {
  std::memcpy(ctx.Out(0).raw(), ctx.In(0).raw(), ctx.In(0).bytes());
}

// Waits for "Signal". 20 s: a test that fails ends.
void WaitingCollective(KernelContext& ctx) {
  std::unique_lock lock(meeting->mutex);
  meeting->collectives.push_back(std::this_thread::get_id());
  meeting->changed.notify_all();
  if (!meeting->changed.wait_for(lock, std::chrono::seconds(20),
                                 [] { return meeting->signaled; })) {
    meeting->timed_out = true;
  }
  meeting->order += "c";
  if (meeting->fails) Fail("the network is gone");
  CopyKernel(ctx);
}

void Signal(KernelContext& ctx) {
  const std::lock_guard lock(meeting->mutex);
  meeting->signaled = true;
  meeting->order += "s";
  meeting->changed.notify_all();
  CopyKernel(ctx);
}

void Reader(KernelContext& ctx) {
  const std::lock_guard lock(meeting->mutex);
  meeting->order += "r";
  CopyKernel(ctx);
}

void Thrower(KernelContext&) {
  std::unique_lock lock(meeting->mutex);
  meeting->changed.wait(lock, [] { return !meeting->collectives.empty(); });
  meeting->signaled = true;
  meeting->changed.notify_all();
  Fail("a step fails");
}

// The CPU's provider with these ops alone.
class MeetingProvider : public ForwardingProvider {
 public:
  MeetingProvider() : ForwardingProvider(MakeCpuProvider()) {
    kernels_.Add("AllReduce", WaitingCollective, {}, kDomain);
    kernels_.Add("Signal", Signal);
    kernels_.Add("Reader", Reader);
    kernels_.Add("Thrower", Thrower);
  }
};

class BesideTest : public testing::Test {
 protected:
  BesideTest() { meeting = &meeting_; }

  TensorMap Run(const std::string& middle, Profiler* profiler = nullptr) {
    MeetingProvider provider;
    Executor executor(ParseGraph(Concat(R"(
input x: float[2]
input u: float[2]
state w: float[2] = {5,6}
a: float[2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
b: float[2] = )",
                                        middle, R"((u)
next: float[2] = Reader(a)
output b
output a
update w = next
)")),
                      provider);
    executor.set_transfer_times(&times_);
    executor.set_profiler(profiler);
    const Tensor x = Tensor::From<float>({2}, std::vector<float>{1, 2});
    const Tensor u = Tensor::From<float>({2}, std::vector<float>{3, 4});
    return executor.Run({{"x", x}, {"u", u}}, state_);
  }

  std::string ErrorOfRun(const std::string& middle) {
    try {
      Run(middle);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  Meeting meeting_;
  TransferTimes times_;
  TensorMap state_;
};

TEST_F(BesideTest, OtherStepsRunMeanwhile) {
  const TensorMap y = Run("Signal");
  EXPECT_FALSE(meeting_.timed_out);
  EXPECT_EQ(meeting_.order, "scr");
  ASSERT_EQ(meeting_.collectives.size(), 1u);
  EXPECT_NE(meeting_.collectives[0], std::this_thread::get_id());
  EXPECT_EQ(y.at("a").data<float>()[1], 2);
  EXPECT_EQ(state_.at("w").data<float>()[1], 2);
  EXPECT_GT(times_.all, 0);
}

TEST_F(BesideTest, ErrorsNameTheCollectiveAndLeaveState) {
  meeting_.fails = true;
  EXPECT_EQ(ErrorOfRun("Signal"),
            "[onnx_fp8.AllReduce -> a] the network is gone");
  EXPECT_FALSE(state_.contains(kHalfUpdated));
  EXPECT_EQ(state_.at("w").data<float>()[1], 6);
  // The provider is as before.
  meeting_.fails = false;
  EXPECT_EQ(ErrorOfRun("Signal"), "");
  EXPECT_EQ(state_.at("w").data<float>()[1], 2);
}

// A step's error does not leave while a collective uses the memory.
TEST_F(BesideTest, ErrorOfAStepWaitsForTheCollective) {
  EXPECT_EQ(ErrorOfRun("Thrower"), "[Thrower -> b] a step fails");
  EXPECT_EQ(meeting_.order, "c");
}

}  // namespace
}  // namespace onnx_fp8
