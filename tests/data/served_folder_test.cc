// SPDX-License-Identifier: Apache-2.0
#include "data/served_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "base/check.h"
#include "data/scaled_weights.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

using ReadJson = nlohmann::json;

Tensor Ramp(DType dtype, const Shape& shape, float by, int64_t first = -11) {
  Tensor numbers = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < numbers.size(); ++i) {
    numbers.data<float>()[i] = static_cast<float>(i % 23 + first) * by + by / 3;
  }
  return ConvertTo(numbers, dtype);
}

// Scales that are bytes stand for powers of two.
ServedCodes Layer(CodeScales scales, const Shape& codes, const Shape& scale) {
  if (scales == CodeScales::kGroups) {
    Tensor bytes = Tensor::Allocate(DType::kUInt8, scale);
    for (int64_t i = 0; i < bytes.size(); ++i) {
      bytes.data<uint8_t>()[i] = static_cast<uint8_t>(110 + i % 30);
    }
    return {scales, Ramp(DType::kE4M3, codes, 0.5f), bytes};
  }
  return {scales, Ramp(DType::kE4M3, codes, 0.5f),
          Ramp(DType::kFloat, scale, 0.01f, 1)};
}

ReadJson JsonIn(const std::string& path) {
  return ReadJson::parse(ReadText(path));
}

// The codes and the scale lie in the folder byte by byte, and are decoded.
void ExpectHeld(const std::string& folder, const ServedTensors& served,
                const std::string& module, const std::string& scale) {
  const WeightFiles read = ReadWeightFiles(folder);
  const ServedCodes& layer = served.layers.at(module);
  const std::string weight = module + ".weight";
  ASSERT_TRUE(read.tensors.contains(module + scale)) << module;
  EXPECT_TRUE(Identical(read.tensors.at(weight), layer.codes.Pull()));
  EXPECT_TRUE(Identical(read.tensors.at(module + scale), layer.scale.Pull()));
  const Tensor decoded = DecodeScaled(read).at(weight).source.Pull();
  const Tensor codes = ConvertTo(layer.codes.Pull(), DType::kFloat);
  const Tensor stored = layer.scale.Pull();
  Tensor by = ConvertTo(stored, DType::kFloat);
  if (layer.scales == CodeScales::kGroups) {
    for (float& exponent : std::span(by.data<float>(), by.size())) {
      exponent = std::exp2(exponent - 127);
    }
  }
  const int64_t columns = codes.dim(1);
  for (int64_t i = 0; i < codes.size(); ++i) {
    const int64_t row = i / columns, column = i % columns;
    int64_t at = 0;
    if (layer.scales == CodeScales::kRows) at = row;
    if (layer.scales == CodeScales::kBlocks) {
      at = row / 128 * by.dim(1) + column / 128;
    }
    if (layer.scales == CodeScales::kGroups) {
      at = row * by.dim(1) + column / 32;
    }
    ASSERT_EQ(decoded.data<float>()[i],
              codes.data<float>()[i] * by.data<float>()[at])
        << module << " " << i;
  }
}

TEST(ServedFolder, BlocksOf128AreDeepSeeks) {
  const TempDir dir;
  ServedTensors served = {.dtype = DType::kBFloat16};
  served.layers.emplace("fc", Layer(CodeScales::kBlocks, {128, 256}, {1, 2}));
  served.tensors.emplace("head.weight", Ramp(DType::kBFloat16, {3, 4}, 1));
  served.whole = {"head"};
  const auto remarks = WriteServedFolder(dir / "out", "", served);
  EXPECT_NE(remarks.at(0).find("DeepSeek"), std::string::npos);
  ExpectHeld(dir / "out", served, "fc", ".weight_scale_inv");
  EXPECT_EQ(JsonIn(dir / "out/config.json"), ReadJson::parse(R"({
    "torch_dtype": "bfloat16",
    "quantization_config": {
      "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
      "weight_block_size": [128, 128], "modules_to_not_convert": ["head"]}})"));
}

TEST(ServedFolder, RaggedBlocksAreCompressedTensors) {
  const TempDir dir;
  ServedTensors served;
  served.layers.emplace("fc", Layer(CodeScales::kBlocks, {130, 256}, {2, 2}));
  // The package compressed-tensors knows norms by one name alone.
  served.tensors.emplace("ln_1.weight", Ramp(DType::kFloat, {256}, 1));
  served.tensors.emplace("ln_1.bias", Ramp(DType::kFloat, {256}, 2));
  served.tensors.emplace("head.weight", Ramp(DType::kFloat, {3, 4}, 1));
  served.whole = {"head"};
  const auto remarks = WriteServedFolder(dir / "out", "", served);
  EXPECT_NE(remarks.at(0).find("no multiple of 128"), std::string::npos);
  ExpectHeld(dir / "out", served, "fc", ".weight_scale");
  const ReadJson config =
      JsonIn(dir / "out/config.json").at("quantization_config");
  EXPECT_EQ(config.at("quant_method"), "compressed-tensors");
  EXPECT_EQ(config.at("ignore"), ReadJson::array({"head", "ln_1"}));
  const ReadJson& group = config.at("config_groups").at("group_0");
  EXPECT_EQ(group.at("targets"), ReadJson::array({"Linear"}));
  EXPECT_EQ(group.at("weights").at("strategy"), "block");
  EXPECT_EQ(group.at("weights").at("block_structure"),
            ReadJson::array({128, 128}));
}

TEST(ServedFolder, LayersOfSeveralKindsAreNamed) {
  const TempDir dir;
  ServedTensors served;
  served.layers.emplace("a", Layer(CodeScales::kTensor, {3, 5}, {1}));
  served.layers.emplace("b", Layer(CodeScales::kRows, {3, 5}, {3, 1}));
  served.layers.emplace("c", Layer(CodeScales::kBlocks, {128, 130}, {1, 2}));
  const auto remarks = WriteServedFolder(dir / "out", "", served);
  EXPECT_NE(remarks.at(0).find("quantizes layers that it joins"),
            std::string::npos);
  EXPECT_NE(remarks.at(0).find("several kinds of scales"), std::string::npos);
  const ReadJson groups = JsonIn(dir / "out/config.json")
                              .at("quantization_config")
                              .at("config_groups");
  const char* strategies[] = {"tensor", "channel", "block"};
  const char* inputs[] = {"tensor", "token", "group"};
  int i = 0;
  for (const char* module : {"a", "b", "c"}) {
    ExpectHeld(dir / "out", served, module, ".weight_scale");
    const ReadJson& group = groups.at(Concat("group_", i));
    EXPECT_EQ(group.at("targets"), ReadJson::array({module}));
    EXPECT_EQ(group.at("weights").at("strategy"), strategies[i]);
    EXPECT_EQ(group.at("input_activations").at("strategy"), inputs[i++]);
  }
}

TEST(ServedFolder, GroupsOf32HaveBytesAsScales) {
  const TempDir dir;
  ServedTensors served;
  served.layers.emplace("a", Layer(CodeScales::kGroups, {3, 96}, {3, 3}));
  WriteServedFolder(dir / "out", "", served);
  ExpectHeld(dir / "out", served, "a", ".weight_scale");
  const ReadJson config =
      JsonIn(dir / "out/config.json").at("quantization_config");
  EXPECT_EQ(config.at("format"), "mxfp8-quantized");
  const ReadJson& group = config.at("config_groups").at("group_0");
  EXPECT_EQ(group.at("format"), "mxfp8-quantized");
  EXPECT_EQ(group.at("weights"), ReadJson::parse(R"({
    "num_bits": 8, "type": "float", "symmetric": true, "dynamic": false,
    "group_size": 32, "strategy": "group", "scale_dtype": "torch.uint8",
    "zp_dtype": "torch.uint8"})"));
  EXPECT_EQ(group.at("input_activations").at("dynamic"), true);
  served.layers.emplace("b", Layer(CodeScales::kRows, {3, 5}, {3, 1}));
  WriteServedFolder(dir / "both", "", served);
  EXPECT_EQ(
      JsonIn(dir / "both/config.json").at("quantization_config").at("format"),
      "mixed-precision");
}

TEST(ServedFolder, InputsHaveAScaleOfTheirOwn) {
  const TempDir dir;
  ServedTensors served;
  served.layers.emplace("a", Layer(CodeScales::kTensor, {3, 5}, {1}));
  served.layers.emplace("b", Layer(CodeScales::kTensor, {3, 5}, {1}));
  served.layers.at("b").input_scale = 0.375f;
  const auto remarks = WriteServedFolder(dir / "out", "", served);
  EXPECT_NE(remarks.at(0).find("1 of them has the run's kept scale of inputs"),
            std::string::npos);
  const WeightFiles read = ReadWeightFiles(dir / "out");
  EXPECT_EQ(read.tensors.size(), 5u);
  EXPECT_TRUE(Identical(read.tensors.at("b.input_scale"),
                        Tensor::From<float>({1}, std::vector{0.375f})));
  const ReadJson groups = JsonIn(dir / "out/config.json")
                              .at("quantization_config")
                              .at("config_groups");
  for (const auto& [name, module, dynamic] :
       {std::tuple("group_0", "a", true), {"group_1", "b", false}}) {
    const ReadJson& group = groups.at(name);
    EXPECT_EQ(group.at("targets"), ReadJson::array({module}));
    EXPECT_EQ(group.at("weights").at("dynamic"), false);
    EXPECT_EQ(group.at("input_activations").at("dynamic"), dynamic);
    EXPECT_EQ(group.at("input_activations").at("strategy"), "tensor");
  }
}

// Whoever makes codes has the scale then.
TEST(ServedFolder, AScaleIsPulledBehindItsCodes) {
  const TempDir dir;
  std::vector<std::string> pulls;
  ServedTensors served;
  for (const char* module : {"b", "a"}) {
    const ServedCodes layer = Layer(CodeScales::kRows, {3, 5}, {3, 1});
    const auto noted = [&](const TensorSource& source, const char* what) {
      return TensorSource(source.dtype(), source.shape(), [=, &pulls] {
        pulls.push_back(Concat(module, what));
        return source.Pull();
      });
    };
    served.layers.emplace(
        module, ServedCodes{layer.scales, noted(layer.codes, " codes"),
                            noted(layer.scale, " scale")});
  }
  // Each tensor has a file of its own, or all have one.
  for (size_t bytes : {1, 1000}) {
    pulls.clear();
    WriteServedFolder(dir / std::to_string(bytes), "", served, bytes);
    EXPECT_EQ(pulls, (std::vector<std::string>{"a codes", "a scale", "b codes",
                                               "b scale"}));
  }
}

TEST(ServedFolder, ShardsHaveAnIndex) {
  const TempDir dir;
  ServedTensors served;
  served.tensors.emplace("a", Ramp(DType::kFloat, {10}, 1));
  served.tensors.emplace("b", Ramp(DType::kFloat, {10}, 2));
  served.tensors.emplace("c", Ramp(DType::kFloat, {30}, 3));
  WriteServedFolder(dir / "out", "", served, 80);
  EXPECT_EQ(
      NamesIn(dir / "out"),
      (std::set<std::string>{"config.json", "model-00001-of-00002.safetensors",
                             "model-00002-of-00002.safetensors",
                             "model.safetensors.index.json"}));
  const ReadJson index = JsonIn(dir / "out/model.safetensors.index.json");
  EXPECT_EQ(index.at("metadata").at("total_size"), 200);
  EXPECT_EQ(index.at("weight_map").at("b"), "model-00001-of-00002.safetensors");
  const WeightFiles read = ReadWeightFiles(dir / "out");
  ASSERT_EQ(read.tensors.size(), 3u);
  for (const auto& [name, source] : served.tensors) {
    EXPECT_TRUE(Identical(read.tensors.at(name), source.Pull())) << name;
  }
}

TEST(ServedFolder, TakesOverAFolder) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "hub");
  WriteText(dir / "hub/config.json",
            R"({"model_type": "x", "dtype": "float16",
                "quantization_config": {"quant_method": "old"}})");
  for (const char* name : {"tokenizer.json", "generation_config.json",
                           "README.md", "model.safetensors"}) {
    WriteText(dir / ("hub/" + std::string(name)), name);
  }
  ServedTensors served = {.dtype = DType::kBFloat16};
  served.tensors.emplace("a", Ramp(DType::kBFloat16, {10}, 1));
  WriteServedFolder(dir / "out", dir / "hub", served);
  EXPECT_EQ(NamesIn(dir / "out"),
            (std::set<std::string>{"config.json", "generation_config.json",
                                   "model.safetensors", "tokenizer.json"}));
  EXPECT_EQ(JsonIn(dir / "out/config.json"),
            ReadJson::parse(R"({"model_type": "x", "dtype": "bfloat16"})"));
  EXPECT_EQ(ReadText(dir / "out/tokenizer.json"), "tokenizer.json");
}

// A folder is there whole or not at all, and none is replaced.
TEST(ServedFolder, NothingIsLeftBehindAnError) {
  const TempDir dir;
  ServedTensors served;
  served.tensors.emplace("a", Ramp(DType::kFloat, {10}, 1));
  served.tensors.emplace("b", TensorSource(DType::kFloat, {10}, []() -> Tensor {
                           Fail("the disk failed");
                         }));
  const auto write = [&] { WriteServedFolder(dir / "out", "", served, 40); };
  ExpectError(write, "the disk failed");
  EXPECT_TRUE(NamesIn(dir.path()).empty());
  std::filesystem::create_directory(dir / "out");
  WriteText(dir / "out/mine", "");
  ExpectError(write, "expected the name of a new folder, or an empty one");
  EXPECT_EQ(NamesIn(dir / "out"), std::set<std::string>{"mine"});
  std::filesystem::create_directory(dir / "hub");
  ExpectError([&] { WriteServedFolder(dir / "new", dir / "hub", served); },
              "expected a folder of Hugging Face with config.json");
  WriteText(dir / "hub/config.json", "[]");
  ExpectError([&] { WriteServedFolder(dir / "new", dir / "hub", served); },
              "expected the configuration of a model as JSON, an object");
}

}  // namespace
}  // namespace onnx_fp8
