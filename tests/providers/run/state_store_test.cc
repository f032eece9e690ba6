// SPDX-License-Identifier: Apache-2.0
#include "providers/run/state_store.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/graph/parse.h"
#include "tests/providers/device_provider.h"
#include "tests/support/forwarding_provider.h"
#include "tests/support/mapped_bytes.h"
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

// What is large lies in files, whoever sets it.
TEST(StateStore, LargeTensorsLieInFiles) {
  TempDir dir;
  constexpr int64_t kLarge = StatePlaces::kLeastInFile / sizeof(float);
  auto cpu = MakeCpuProvider();
  StateStore store(*cpu, {.folder = dir.path(), .on_host = {}});
  store.Set("w", Tensor::Zeros(DType::kFloat, {kLarge}));
  store.Read("v", Tensor::Zeros(DType::kFloat, {kLarge}));
  store.Set("small", Tensor::Zeros(DType::kFloat, {kLarge - 1}));
  const size_t mapped = 2 * StatePlaces::kLeastInFile;
  EXPECT_EQ(MappedBytesOf(dir.path()), mapped);
  EXPECT_EQ(store.outside_bytes(), mapped);
  EXPECT_EQ(store.bytes(), mapped + 4 * (kLarge - 1));
  store.Get("w").Reshaped({kLarge}).data<float>()[kLarge - 1] = 3;
  store.Erase("v");
  EXPECT_EQ(DoubleAt(store.Host("w"), kLarge - 1), 3);
  EXPECT_EQ(MappedBytesOf(dir.path()), StatePlaces::kLeastInFile);
}

// A disk that is full now may have room later.
TEST(StateStore, WithoutRoomThereIsNoTensor) {
  TempDir dir;
  constexpr int64_t kLarge = StatePlaces::kLeastInFile / sizeof(float);
  auto cpu = MakeCpuProvider();
  StateStore store(*cpu, {.folder = dir / "disk", .on_host = {}});
  const Tensor value = Tensor::Zeros(DType::kFloat, {kLarge});
  ExpectError([&] { store.Set("w", value); }, "expected a folder");
  EXPECT_FALSE(store.Has("w"));
  std::filesystem::create_directory(dir / "disk");
  store.Set("w", value);
  EXPECT_EQ(store.outside_bytes(), StatePlaces::kLeastInFile);
}

// A device that counts the bytes that it takes of the host's memory.
class DeviceBesideHost : public ForwardingProvider {
 public:
  explicit DeviceBesideHost(size_t* bytes)
      : ForwardingProvider(MakeDeviceProvider()), bytes_(bytes) {}
  std::shared_ptr<void> AllocateOnHost(size_t bytes) override {
    *bytes_ += bytes;
    return Allocate(bytes);
  }

 private:
  size_t* bytes_;
};

TEST(StateStore, NamedTensorsLieOnADevicesHost) {
  size_t on_host = 0;
  DeviceBesideHost device(&on_host);
  StateStore store(device, {.folder = "", .on_host = {"m", "n"}});
  store.Set("w", Floats({1, 2, 3}));
  EXPECT_EQ(on_host, 0u);
  store.Set("m", Floats({4, 5}));
  store.Set("m", Floats({6, 7}));  // in place
  EXPECT_EQ(on_host, 8u);
  EXPECT_EQ(store.outside_bytes(), 8u);
  EXPECT_TRUE(Identical(store.Host("m"), Floats({6, 7})));
}

// An executor finds the first values in their place.
TEST(StateStore, APlansFirstValuesGetTheirPlace) {
  auto graph = ParseGraph(R"(
input x: float[2]
moment m: float[2]
moment n: float[2]
param w: float[2]
y: float[2] = Add(m, x)
z: float[2] = Add(n, y)
v: float[2] = Add(w, z)
output v
update m = y
update w = v
)");
  size_t on_host = 0;
  DeviceBesideHost device(&on_host);
  StateStore store(device, {.folder = "", .on_host = {"m", "n"}});
  const Plan plan =
      MakePlan(*graph, CpuKernels(), Device::kProvider, device.queue());
  store.AddOutside(plan);
  EXPECT_EQ(on_host, 8u);  // nothing moves n, and w lies on the device
  EXPECT_TRUE(store.Has("m") && !store.Has("n") && !store.Has("w"));
  EXPECT_TRUE(Identical(store.Host("m"), graph->Find("m")->data));
  store.AddOutside(plan);
  EXPECT_EQ(on_host, 8u);
}

class StateFromFile : public testing::Test {
 protected:
  static constexpr int64_t kSize = 1 << 19;  // 2 MiB

  StateFromFile() {
    std::vector<float> numbers(kSize);
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>(i);
    }
    whole_ = Floats(numbers);
    WriteText(path_, {static_cast<const char*>(whole_.raw()), whole_.bytes()});
  }

  // A tensor in the mapped file.
  Tensor Mapped() const {
    const MappedFile part =
        MapPart(std::make_shared<const InputFile>(path_), 0, whole_.bytes());
    return Tensor::View(DType::kFloat, {kSize}, part.owner, part.data);
  }

  TempDir dir_;
  std::string path_ = dir_ / "weights.bin";
  Tensor whole_;
};

TEST_F(StateFromFile, IsReadIntoItsPlace) {
  for (const bool on_host : {true, false}) {
    auto provider = on_host ? MakeCpuProvider() : MakeDeviceProvider();
    StateStore store(*provider);
    store.Read("w", Mapped());
    EXPECT_EQ(store.Get("w").on_host(), on_host);
    EXPECT_TRUE(Identical(store.Host("w"), whole_));
    EXPECT_EQ(store.bytes(), whole_.bytes());
  }
}

// A mapping that was looked at would end the process with SIGBUS.
TEST_F(StateFromFile, OfAFileThatWasCutIsAnError) {
  auto cpu = MakeCpuProvider();
  StateStore store(*cpu);
  const Tensor mapped = Mapped();
  std::filesystem::resize_file(path_, whole_.bytes() / 2);
  ExpectError([&] { store.Read("w", mapped); },
              "[" + path_ + "] became shorter while it was read");
  EXPECT_FALSE(store.Has("w"));
}

TEST_F(StateFromFile, IsACopyThatStaysWhereItIs) {
  for (const bool on_host : {true, false}) {
    auto provider = on_host ? MakeCpuProvider() : MakeDeviceProvider();
    StateStore store(*provider);
    Tensor value = Floats({1, 2});
    store.Read("w", value);
    value.data<float>()[0] = 7;
    EXPECT_TRUE(Identical(store.Host("w"), Floats({1, 2})));
    const Tensor shared = store.Get("w");
    store.Read("w", Floats({3, 4}));
    EXPECT_TRUE(shared.SharesDataWith(store.Get("w")));
    EXPECT_TRUE(Identical(store.Host("w"), Floats({3, 4})));
    store.Read("w", Floats({5}));
    EXPECT_TRUE(Identical(provider->ToHost(shared), Floats({3, 4})));
    EXPECT_TRUE(Identical(store.Host("w"), Floats({5})));
  }
}

}  // namespace
}  // namespace onnx_fp8
