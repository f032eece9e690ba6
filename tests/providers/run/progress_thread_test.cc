// SPDX-License-Identifier: Apache-2.0
#include "providers/run/progress_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

std::string AwaitError(SideQueue& queue) {
  try {
    queue.Await();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ProgressThreadTest, WorksRunBesideTheCallerInTheirOrder) {
  ProgressThread queue;
  std::promise<void> caller_goes_on;
  std::vector<int> done;
  queue.Start([&] {
    caller_goes_on.get_future().wait();
    done.push_back(1);
  });
  queue.Start([&] { done.push_back(2); });
  caller_goes_on.set_value();
  queue.Await();
  EXPECT_EQ(done.at(0), 1);
  queue.Await();
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
}

// The works behind a failed one are not done, until the error is dropped.
TEST(ProgressThreadTest, Errors) {
  ProgressThread queue;
  bool second = false, third = false;
  queue.Start([] { Fail("first"); });
  queue.Start([&] { second = true; });
  EXPECT_EQ(AwaitError(queue), "first");
  queue.Drop();
  queue.Start([&] { third = true; });
  EXPECT_EQ(AwaitError(queue), "");
  EXPECT_FALSE(second);
  EXPECT_TRUE(third);
}

TEST(ProgressThreadTest, DropWaitsForAWorkThatHasBegun) {
  bool begun = false, ended = false, behind = false;
  {
    ProgressThread queue;
    std::promise<void> begins;
    queue.Start([&] {
      begun = true;
      begins.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = true;
    });
    queue.Start([&] { behind = true; });
    begins.get_future().wait();
    queue.Drop();
    EXPECT_TRUE(begun && ended);
    queue.Drop();  // nothing is left
  }
  EXPECT_FALSE(behind);
}

}  // namespace
}  // namespace onnx_fp8
