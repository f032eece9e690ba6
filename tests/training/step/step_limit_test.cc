// SPDX-License-Identifier: Apache-2.0
#include "training/step/step_limit.h"

#include <gtest/gtest.h>

#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

TEST(ParseMemory, TakesUnitsOfBothKinds) {
  EXPECT_EQ(ParseMemory("1"), 1u);
  EXPECT_EQ(ParseMemory("1234567"), 1234567u);
  EXPECT_EQ(ParseMemory("12B"), 12u);
  EXPECT_EQ(ParseMemory("3KiB"), 3u << 10);
  EXPECT_EQ(ParseMemory("3kB"), 3000u);
  EXPECT_EQ(ParseMemory("512MiB"), size_t{512} << 20);
  EXPECT_EQ(ParseMemory("512MB"), 512000000u);
  EXPECT_EQ(ParseMemory("74GiB"), size_t{74} << 30);
  EXPECT_EQ(ParseMemory("80GB"), 80000000000u);
  EXPECT_EQ(ParseMemory("1.5GiB"), size_t{3} << 29);
  EXPECT_EQ(ParseMemory("2TiB"), size_t{2} << 40);
}

TEST(ParseMemory, RefusesOtherText) {
  for (const char* text :
       {"", "auto", "lots", "GiB", "0", "0.2B", "-1GiB", "1 GiB", "1GIB", "1e9",
        "0x10", "nan", "inf", "1G", "9007199254740992", "99999999TiB"}) {
    EXPECT_THROW(ParseMemory(text), OptionError) << text;
  }
}

std::optional<StepLimit> LimitOf(const std::string& memory,
                                 std::vector<std::string> recompute,
                                 Device device = Device::kHost,
                                 size_t available = 1000) {
  SessionOptions options;
  options.memory = memory;
  options.recompute = std::move(recompute);
  return StepLimitOf(options, device, [=] { return available; });
}

TEST(StepLimitOf, TheOptionsDecide) {
  EXPECT_FALSE(LimitOf("", {}));
  EXPECT_FALSE(LimitOf("", {"blocks"}));
  EXPECT_EQ(LimitOf("", {"auto"})->bytes, 1000u);
  EXPECT_EQ(LimitOf("auto", {})->bytes, 1000u);
  EXPECT_EQ(LimitOf("auto", {"blocks"})->bytes, 1000u);
  EXPECT_EQ(LimitOf("2kB", {"auto"})->bytes, 2000u);
  EXPECT_EQ(LimitOf("2kB", {})->reserve, 0u);
  EXPECT_EQ(LimitOf("2kB", {}, Device::kProvider)->reserve, kDeviceReserve);
  EXPECT_EQ(LimitOf("2kB", {}, Device::kHost, 0)->bytes, 2000u);
  EXPECT_THROW(LimitOf("auto", {}, Device::kHost, 0), OptionError);
}

TEST(StepLimitOf, MemoryAloneSearches) {
  SessionOptions options;
  EXPECT_FALSE(RecomputesAutomatically(options));
  options.memory = "1GiB";
  EXPECT_TRUE(RecomputesAutomatically(options));
  options.recompute = {"none"};
  EXPECT_FALSE(RecomputesAutomatically(options));
  options.recompute = {"auto"};
  options.memory = "";
  EXPECT_TRUE(RecomputesAutomatically(options));
}

}  // namespace
}  // namespace onnx_fp8
