// SPDX-License-Identifier: Apache-2.0
#include "data/scaled_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "data/safetensors.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

// Codes of every sign and size, the same each time.
Tensor SomeCodes(DType format, const Shape& shape) {
  Tensor numbers = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < numbers.size(); ++i) {
    const auto step = static_cast<float>(i * 37 % 101 - 50);
    numbers.data<float>()[i] = step / 8;
  }
  return ConvertTo(numbers, format);
}

// Powers of two, so that every format of scales holds them: 2^-3 … 2^3.
Tensor SomeScales(const Shape& shape) {
  Tensor scales = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < scales.size(); ++i) {
    scales.data<float>()[i] = std::ldexp(1.0f, static_cast<int>(i * 5 % 7) - 3);
  }
  return scales;
}

// The same as exponents in bytes.
Tensor AsBytes(const Tensor& scales) {
  Tensor bytes = Tensor::Allocate(DType::kUInt8, scales.shape());
  for (int64_t i = 0; i < scales.size(); ++i) {
    const int exponent = std::ilogb(scales.data<float>()[i]);
    bytes.data<uint8_t>()[i] = static_cast<uint8_t>(exponent + 127);
  }
  return bytes;
}

// Writes the tensors, and config.json if there is a text, and decodes them.
StoredWeights DecodedFile(const TempDir& dir, const TensorMap& tensors,
                          const std::string& config = "") {
  WriteSafetensors(dir / "model.safetensors", Sources(tensors));
  if (!config.empty()) WriteText(dir / "config.json", config);
  return DecodeScaled(ReadWeightFiles(dir.path()));
}

// Element (i, j) of the decoded matrix is code(i, j) · scale(i, j).
void ExpectDecoded(const StoredWeights& weights, const std::string& name,
                   const Tensor& codes,
                   const std::function<float(int64_t, int64_t)>& scale) {
  ASSERT_TRUE(weights.contains(name)) << name;
  const StoredWeight& stored = weights.at(name);
  EXPECT_EQ(stored.name, name);
  EXPECT_EQ(stored.source.dtype(), DType::kFloat);
  const Tensor got = stored.source.Pull();
  ASSERT_EQ(got.shape(), codes.shape());
  const int64_t columns = codes.dim(-1);
  for (int64_t k = 0; k < got.size(); ++k) {
    const auto code = static_cast<float>(DoubleAt(codes, k));
    ASSERT_EQ(got.data<float>()[k], code * scale(k / columns, k % columns))
        << name << " at " << k;
  }
}

TEST(ScaledWeights, OneScaleForTheTensor) {
  TempDir dir;
  TensorMap tensors;
  for (DType format : {DType::kE4M3, DType::kE5M2}) {
    const std::string name = std::string(Name(format)) + ".weight";
    tensors[name] = SomeCodes(format, {3, 5});
    tensors[name + "_scale"] = Tensor::Scalar(0.75f);
  }
  tensors["one.weight"] = SomeCodes(DType::kE4M3, {3, 5});
  tensors["one.weight_scale_inv"] =
      Tensor::From<float>({1}, std::vector<float>{3});
  const StoredWeights weights = DecodedFile(dir, tensors);
  EXPECT_EQ(weights.size(), 3u);  // the scales are gone
  for (DType format : {DType::kE4M3, DType::kE5M2}) {
    const std::string name = std::string(Name(format)) + ".weight";
    ExpectDecoded(weights, name, tensors.at(name),
                  [](int64_t, int64_t) { return 0.75f; });
  }
  ExpectDecoded(weights, "one.weight", tensors.at("one.weight"),
                [](int64_t, int64_t) { return 3.0f; });
}

TEST(ScaledWeights, OneScaleForEachRow) {
  TempDir dir;
  const Tensor codes = SomeCodes(DType::kE4M3, {7, 5});
  const Tensor scales = SomeScales({7});
  const StoredWeights weights = DecodedFile(
      dir, {{"a.weight", codes},
            {"a.weight_scale", scales},
            {"b.weight", codes},
            {"b.weight_scale", scales.Reshaped({7, 1})},
            {"c.weight", codes},
            {"c.weight_scale", ConvertTo(scales, DType::kBFloat16)},
            {"d.weight", codes},
            {"d.qscale_weight", ConvertTo(scales, DType::kFloat16)}});
  EXPECT_EQ(weights.size(), 4u);
  for (const char* name : {"a.weight", "b.weight", "c.weight", "d.weight"}) {
    ExpectDecoded(weights, name, codes,
                  [&](int64_t i, int64_t) { return scales.data<float>()[i]; });
  }
}

TEST(ScaledWeights, BlocksWithRaggedEdges) {
  TempDir dir;
  const Tensor codes = SomeCodes(DType::kE4M3, {200, 130});
  const Tensor scales = SomeScales({2, 2});
  const StoredWeights weights =
      DecodedFile(dir, {{"a.weight", codes},
                        {"a.weight_scale_inv", scales},
                        {"b.weight", codes},
                        {"b.scale", scales.Reshaped({2, 1, 2, 1})}});
  EXPECT_EQ(weights.size(), 2u);
  for (const char* name : {"a.weight", "b.weight"}) {
    ExpectDecoded(weights, name, codes, [&](int64_t i, int64_t j) {
      return scales.data<float>()[i / 128 * 2 + j / 128];
    });
  }
}

TEST(ScaledWeights, AGridOfOneColumn) {
  TempDir dir;
  const Tensor codes = SomeCodes(DType::kE4M3, {257, 4});
  const Tensor scales = SomeScales({3, 1});
  ExpectDecoded(
      DecodedFile(dir, {{"a.weight", codes}, {"a.weight_scale_inv", scales}}),
      "a.weight", codes,
      [&](int64_t i, int64_t) { return scales.data<float>()[i / 128]; });
}

TEST(ScaledWeights, BlocksOfTheConfig) {
  const Tensor codes = SomeCodes(DType::kE4M3, {5, 33});
  const Tensor scales = SomeScales({2, 3});
  for (const char* quantization : {R"({"weight_block_size": [4, 11]})",
                                   R"({"config_groups": {"group_0": {"weights":
            {"strategy": "block", "block_structure": [4, 11]}}}})"}) {
    TempDir dir;
    ExpectDecoded(
        DecodedFile(dir, {{"a.weight", codes}, {"a.weight_scale_inv", scales}},
                    Concat("{\"quantization_config\": ", quantization, "}")),
        "a.weight", codes, [&](int64_t i, int64_t j) {
          return scales.data<float>()[i / 4 * 3 + j / 11];
        });
  }
}

TEST(ScaledWeights, ScalesThatAreExponents) {
  TempDir dir;
  const Tensor codes = SomeCodes(DType::kE4M3, {3, 70});
  const Tensor scales = SomeScales({3, 3});
  const StoredWeights weights =
      DecodedFile(dir, {{"a.weight", codes},
                        {"a.weight_scale", AsBytes(scales)},
                        {"b.weight", codes},
                        {"b.weight_scale", ConvertTo(scales, DType::kE8M0)}});
  for (const char* name : {"a.weight", "b.weight"}) {
    ExpectDecoded(weights, name, codes, [&](int64_t i, int64_t j) {
      return scales.data<float>()[i * 3 + j / 32];
    });
  }
}

// Codes and scales stay in the file until a weight is pulled. The file has the
// codes first.
TEST(ScaledWeights, SaysThatTheFileOfAScaleBecameShorter) {
  constexpr int64_t kRows = 1 << 20;  // as many bytes are mapped
  TempDir dir;
  const StoredWeights weights = DecodedFile(
      dir, {{"a.weight", Tensor::Zeros(DType::kE4M3, {kRows, 1})},
            {"a.weight_scale", Tensor::Zeros(DType::kUInt8, {kRows, 1})}});
  const std::string file = dir / "model.safetensors";
  std::filesystem::resize_file(file, kRows + kRows / 2);
  ExpectError([&] { weights.at("a.weight").source.Pull(); },
              "[" + file + "] became shorter while it was read");
}

TEST(ScaledWeights, LeavesOtherTensorsAlone) {
  TempDir dir;
  const Tensor codes = SomeCodes(DType::kE4M3, {2, 3});
  const StoredWeights weights =
      DecodedFile(dir, {{"a.weight", codes},
                        {"a.input_scale", Tensor::Scalar(2.0f)},
                        {"norm.weight", SomeScales({3})},
                        {"norm.weight_scale", Tensor::Scalar(4.0f)}});
  ASSERT_EQ(weights.size(), 4u);
  EXPECT_TRUE(Identical(weights.at("a.weight").source.Pull(), codes));
  EXPECT_TRUE(
      Identical(weights.at("norm.weight").source.Pull(), SomeScales({3})));
}

TEST(ScaledWeights, AnEmptyMatrix) {
  TempDir dir;
  const Tensor codes = SomeCodes(DType::kE4M3, {0, 3});
  const StoredWeights weights = DecodedFile(
      dir, {{"a.weight", codes}, {"a.weight_scale", Tensor::Scalar(2.0f)}});
  EXPECT_EQ(weights.at("a.weight").source.Pull().shape(), (Shape{0, 3}));
}

TEST(ScaledWeights, RefusesNumbersThatNobodyWrites) {
  Tensor codes = SomeCodes(DType::kE4M3, {4, 8});
  const auto refusal = [&](float scale) {
    TempDir dir;
    const Tensor scales =
        Tensor::From<float>({4}, std::vector<float>{1, 1, scale, 1});
    const StoredWeights weights =
        DecodedFile(dir, {{"a.weight", codes}, {"a.weight_scale", scales}});
    const std::string text =
        ErrorOf([&] { weights.at("a.weight").source.Pull(); });
    return text.substr(text.find(']') + 1);
  };
  EXPECT_EQ(refusal(-1),
            " expected a.weight_scale of finite numbers above 0, got -1 at "
            "element 2");
  EXPECT_NE(refusal(NAN).find("got nan at element 2"), std::string::npos);
  EXPECT_NE(refusal(INFINITY).find("got inf at element 2"), std::string::npos);
  EXPECT_NE(
      refusal(0).find(" expected a.weight_scale above 0, got 0 for code "),
      std::string::npos);
  EXPECT_EQ(refusal(1), "");
  auto* bytes = static_cast<uint8_t*>(codes.raw());
  std::fill(bytes + 16, bytes + 24, uint8_t{0});
  EXPECT_EQ(refusal(0), "");  // a row of zeros
  bytes[3] = 0x7f;
  EXPECT_EQ(
      refusal(1),
      " expected a.weight_scale beside codes that are numbers, got NaN as "
      "code 3");
}

TEST(ScaledWeights, Refuses) {
  const Tensor codes = SomeCodes(DType::kE4M3, {200, 130});
  const auto refusal = [&](TensorMap tensors, const std::string& config = "") {
    TempDir dir;
    tensors["a.weight"] = codes;
    return ErrorOf([&] { DecodedFile(dir, tensors, config); });
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  for (const Shape& shape : {Shape{200, 2}, Shape{3, 2}, Shape{130}, Shape{4},
                             Shape{2, 2, 1}, Shape{0}}) {
    expect(refusal({{"a.weight_scale", SomeScales(shape)}}),
           "model.safetensors] expected a.weight_scale for the tensor, its "
           "rows or its blocks of 128 x 128");
  }
  expect(refusal({{"a.weight_scale", Tensor::Scalar(int64_t{1})}}),
         "expected a.weight_scale of a float type, got int64");
  expect(refusal({{"a.weight_scale",
                   ConvertTo(Tensor::Scalar(1.0f), DType::kE5M2)}}),
         "expected a.weight_scale of a float type, got float8e5m2");
  expect(refusal({{"a.weight_scale", Tensor::Scalar(1.0f)},
                  {"a.weight_scale_inv", Tensor::Scalar(1.0f)}}),
         "expected one scale of a.weight, got a.weight_scale_inv and "
         "a.weight_scale");
  expect(refusal({{"a.weight_scale", Tensor::Scalar(1.0f)}}, "{"),
         "config.json] expected the configuration of a model as JSON");
  // Sides of blocks that are no sides name no blocks.
  for (const char* side : {"0", "-1", "1.5", "\"4\"", "4294967296"}) {
    const std::string config = Concat(
        "{\"quantization_config\": {\"weight_block_size\": [", side, ", 65]}}");
    expect(refusal({{"a.weight_scale", SomeScales({50, 2})}}, config),
           "expected a.weight_scale for the tensor");
  }
}

}  // namespace
}  // namespace onnx_fp8
