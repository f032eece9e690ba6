// SPDX-License-Identifier: Apache-2.0
//
// Evaluations and gradients that measure their casts to FP8.
#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {
namespace {

TEST(Statistics, AreOfTheCallsThatAskForThem) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  options.stats = "every=1";
  auto session = TrainingSession::Create(options);
  const TensorMap batch = Batch(1);
  EXPECT_TRUE(session->Eval(batch).casts.empty());
  EXPECT_TRUE(session->Gradients(batch, false).casts.empty());
  const EvalResult measured = session->Eval(batch, true);
  const GradientResult backward = session->Gradients(batch, false, true);
  // Each of the two layers has two operands and a product.
  EXPECT_EQ(measured.casts.size(), 6u);
  EXPECT_GT(backward.casts.size(), 6u);
  EXPECT_EQ(measured.loss, session->Eval(batch).loss);
  ExpectSame(backward.gradients, session->Gradients(batch, false).gradients);
  for (const MeasuredCast& cast : measured.casts) {
    EXPECT_EQ(cast.gemm, "forward");
    EXPECT_GT(cast.numbers.Sqnr(), 20) << cast.fqn;
  }
}

TEST(Statistics, AreRefusedWithoutTheirOption) {
  TempDir dir;
  auto session =
      TrainingSession::Create(Options(WriteMlp(dir, false), "tensorwise"));
  try {
    session->Eval(Batch(1), true);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "`stats` is missing: it says which layers are measured");
  }
}

}  // namespace
}  // namespace onnx_fp8
