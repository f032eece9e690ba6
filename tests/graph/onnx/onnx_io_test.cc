// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx/onnx_io.h"

#include <gtest/gtest.h>
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "graph/schemas.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

ONNX_NAMESPACE::ModelProto Written(const char* text) {
  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / "onnx_fp8_written.onnx";
  WriteModel(*ParseGraph(text), path.string());
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  ONNX_NAMESPACE::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  RegisterSchemas();
  ONNX_NAMESPACE::checker::check_model(model);
  return model;
}

int64_t OpsetOf(const ONNX_NAMESPACE::ModelProto& model) {
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty()) return import.version();
  }
  return -1;
}

TEST(WriteModel, TakesTheLowestOpsetThatKnowsTheScales) {
  auto model = Written(R"(
input x: float[2,64]
q: float8e4m3fn[2,64], s: float[2,2], a: float[] = onnx_fp8.QuantizeBlock<to=17, q_max=448.0, block_rows=1, block_columns=32, pow2=1, scale_to=1>(x)
output a
)");
  EXPECT_EQ(OpsetOf(model), 19);
  EXPECT_EQ(model.ir_version(), 10);
  model = Written(R"(
input x: float[2,64]
q: float8e4m3fn[2,64], s: float8e8m0[2,2], a: float[] = onnx_fp8.QuantizeBlock<to=17, q_max=448.0, block_rows=1, block_columns=32, pow2=1, scale_to=24>(x)
output a
)");
  EXPECT_EQ(OpsetOf(model), 24);
  EXPECT_EQ(model.ir_version(), 12);
  ASSERT_EQ(model.functions_size(), 1);
  for (const auto& import : model.functions(0).opset_import()) {
    EXPECT_EQ(import.version(), 24);
  }
}

}  // namespace
}  // namespace onnx_fp8
