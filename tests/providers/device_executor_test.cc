// SPDX-License-Identifier: Apache-2.0
// An executor on a device; tests/training/device_test.cc has whole sessions.
#include <gtest/gtest.h>

#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/providers/device_provider.h"

namespace onnx_fp8 {
namespace {

// The flag of a choice lies on the device, so both of its operands are
// computed there. The CPU computes the one that it takes.
TEST(DeviceExecutor, ComputesBothBranches) {
  std::shared_ptr<Graph> graph = ParseGraph(R"(
input c: bool[]
input x: float[2]
a: float[2] = Neg(x)
b: float[2] = Exp(x)
y: float[2] = Where(c, a, b)
output y
)");
  auto device = MakeDeviceProvider();
  auto cpu = MakeCpuProvider();
  Executor on_device(graph, *device), on_cpu(graph, *cpu);
  for (const Step& step : on_device.plan().steps) {
    EXPECT_TRUE(step.guards.empty());
  }
  for (bool flag : {false, true}) {
    TensorMap feeds = {{"c", Tensor::Scalar(flag)},
                       {"x", Tensor::From<float>({2}, {1.0f, -2.0f})}};
    TensorMap state;
    Tensor y = on_device.Run(feeds, state).at("y");
    EXPECT_FALSE(y.on_host());
    EXPECT_TRUE(Identical(device->ToHost(y), on_cpu.Run(feeds, state).at("y")));
  }
}

}  // namespace
}  // namespace onnx_fp8
