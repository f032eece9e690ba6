// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/tensor_source.h"

#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "data/safetensors.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

// A file maps tensors of 1 MiB or more; it reads others at once.
TEST(SourceOfMapped, ReadsWhatAFileMaps) {
  const TempDir dir;
  Tensor large = Tensor::Zeros(DType::kFloat, {512, 512});
  for (int64_t i = 0; i < large.size(); ++i) {
    large.data<float>()[i] = static_cast<float>(i);
  }
  const Tensor small = Tensor::Scalar(3.0f);
  WriteSafetensors(dir / "two.safetensors",
                   Sources({{"large", large}, {"small", small}}), {});
  const TensorMap read = ReadSafetensors(dir / "two.safetensors");
  ASSERT_NE(MappedFileAt(read.at("large").raw()), nullptr);
  const TensorSource source = SourceOfMapped(read.at("large"));
  EXPECT_EQ(source.dtype(), DType::kFloat);
  EXPECT_EQ(source.shape(), large.shape());
  const Tensor pulled = source.Pull();
  EXPECT_TRUE(Identical(pulled, large));
  EXPECT_EQ(MappedFileAt(pulled.raw()), nullptr);
  EXPECT_EQ(SourceOfMapped(small).Pull().raw(), small.raw());
}

}  // namespace
}  // namespace onnx_fp8
