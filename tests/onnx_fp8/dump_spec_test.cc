// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/dump_spec.h"

#include <gtest/gtest.h>

#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

TEST(DumpSpec, ReadsLayersStepsAndOperands) {
  const DumpSpec spec = ParseDump({"a.*", "b"}, {"20", "10", "20"}, {"input"});
  EXPECT_EQ(spec.layers, (std::vector<std::string>{"a.*", "b"}));
  EXPECT_EQ(spec.steps, (std::set<int64_t>{10, 20}));
  EXPECT_EQ(spec.operands, (std::set<std::string>{"input"}));
  EXPECT_TRUE(spec.Dumps(10));
  EXPECT_FALSE(spec.Dumps(11));
}

TEST(DumpSpec, WithoutWordsAllOperandsCount) {
  EXPECT_EQ(
      ParseDump({"*"}, {"1"}, {}).operands,
      (std::set<std::string>{"input", "weight", "grad_output", "output"}));
}

TEST(DumpSpec, NothingIsDumpedWithoutLayers) {
  EXPECT_FALSE(ParseDump({}, {}, {}).Dumps(1));
  EXPECT_FALSE(DumpSpec().Dumps(1));
}

TEST(DumpSpec, RefusesOtherText) {
  EXPECT_THROW(ParseDump({"*"}, {}, {}), OptionError);
  EXPECT_THROW(ParseDump({}, {"1"}, {}), OptionError);
  EXPECT_THROW(ParseDump({}, {}, {"input"}), OptionError);
  EXPECT_THROW(ParseDump({"*"}, {"1"}, {"inputs"}), OptionError);
  for (const char* step : {"", "0", "-1", "1.5", "x", "1 "}) {
    EXPECT_THROW(ParseDump({"*"}, {step}, {}), OptionError) << step;
  }
}

}  // namespace
}  // namespace onnx_fp8
