// SPDX-License-Identifier: Apache-2.0
//
// A session makes one plan for each value of an input that decides something.
#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/session.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

// z = (the first n columns of x) · other.
std::string WriteSlice(const TempDir& dir) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2, 3});
  Value* n = graph.AddInput("n", DType::kInt64, Shape{1});
  Value* other = graph.AddInput("other", DType::kInt64, Shape{});
  Value* y = b.Op("Slice", {x, b.Ints({0}), n, b.Ints({1})});
  Value* z = b.Op("Mul", {y, b.Cast(other, DType::kFloat)});
  graph.Rename(z, "z");
  graph.outputs = {z};
  std::string path = dir / "slice.onnx";
  WriteModel(graph, path);
  return path;
}

TEST(Session, APlanIsForTheValuesThatDecidedIt) {
  TempDir dir;
  SessionOptions options;
  options.model = WriteSlice(dir);
  auto session = TrainingSession::Create(options);
  TensorMap feeds = {{"x", Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6})}};
  for (int64_t n : {1, 2, 1, 3}) {
    feeds["n"] = Tensor::Ints({n});
    feeds["other"] = Tensor::Scalar<int64_t>(10 * n);
    Tensor z = session->Eval(feeds).outputs.at("z");
    ASSERT_EQ(z.shape(), (Shape{2, n}));
    EXPECT_EQ(z.data<float>()[n], static_cast<float>(10 * n * 4));
  }
}

}  // namespace
}  // namespace onnx_fp8
