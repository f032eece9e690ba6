// SPDX-License-Identifier: Apache-2.0
#include "providers/run/state_store.h"

#include <gtest/gtest.h>

#include "providers/cpu/cpu_provider.h"
#include "tests/providers/device_provider.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

Tensor Floats(std::vector<float> values) {
  return Tensor::From({static_cast<int64_t>(values.size())}, values);
}

TEST(StateStore, KeepsTensorsOnTheDevice) {
  auto device = MakeDeviceProvider();
  StateStore store(*device);
  Tensor value = Floats({1, 2});
  store.Set("w", value);
  value.data<float>()[0] = 7;  // it was copied
  EXPECT_FALSE(store.Get("w").on_host());
  EXPECT_TRUE(Identical(store.Host("w"), Floats({1, 2})));
  EXPECT_EQ(store.bytes(), 8u);
  ExpectError([&] { (void)store.Get("v"); }, "[state v]");
  ExpectError([&] { (void)store.Get("w").Clone(); },
              "expected a tensor in host memory, got float[2]");
}

// Who shares a tensor sees what it is set to, unless its type is another.
TEST(StateStore, ATensorStaysWhereItIs) {
  auto cpu = MakeCpuProvider();
  StateStore store(*cpu);
  store.Set("w", Floats({1, 2}));
  Tensor shared = store.Get("w");
  store.Set("w", Floats({3, 4}));
  EXPECT_TRUE(shared.SharesDataWith(store.Get("w")));
  EXPECT_TRUE(shared.SharesDataWith(store.Host("w")));
  EXPECT_TRUE(Identical(shared, Floats({3, 4})));
  store.Set("w", Floats({5}));
  EXPECT_FALSE(shared.SharesDataWith(store.Get("w")));
  store.Erase("w");
  EXPECT_FALSE(store.Has("w"));
}

}  // namespace
}  // namespace onnx_fp8
