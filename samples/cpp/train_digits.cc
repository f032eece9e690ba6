// SPDX-License-Identifier: Apache-2.0
//
// Trains the digits MLP in FP8 through the C++ API:
//   train_digits [folder for the result]
// README.md says how to build it.
#include <cstdio>
#include <exception>
#include <string>

#include "onnx_fp8/dataset.h"
#include "onnx_fp8/session.h"

int main(int argc, char** argv) try {
  using namespace onnx_fp8;
  const std::string sample = "samples/digits_mlp/";
  const std::string out = argc > 1 ? argv[1] : "build/digits_cpp";

  SessionOptions options;
  options.model = sample + "digits_mlp.onnx";
  options.loss.kind = "cross_entropy";
  options.recipe = ParseRecipe("tensorwise");
  auto session = TrainingSession::Create(options);

  DatasetSpec spec;
  spec.files = {sample + "train.npz"};
  spec.inputs = {{"x", DType::kFloat}, {"labels", DType::kInt64}};
  spec.batch_size = 32;
  Dataset data(spec);

  for (int64_t batch = 0; batch < 100; ++batch) {
    StepResult result = session->Step(data.Batch(batch), /*lr=*/1e-3);
    if (result.step % 20 == 0) {
      std::printf("step %ld loss %.4f\n", static_cast<long>(result.step),
                  static_cast<double>(result.loss));
    }
  }
  session->Save(out);
  session->ExportOnnx(out + "/trained.onnx");
  session->ExportSafetensors(out + "/trained.safetensors");
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_digits: %s\n", error.what());
  return 1;
}
