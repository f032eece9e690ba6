// SPDX-License-Identifier: Apache-2.0
#include "data/adapter_folder.h"

#include <gtest/gtest.h>

#include "data/safetensors.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

constexpr char kGoodConfig[] =
    R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "lora_dropout": 0.1,
        "use_rslora": true, "target_modules": ["fc"], "bias": "none",
        "use_dora": false, "rank_pattern": {}, "megatron_core": "x"})";

Tensor FloatZeros(const Shape& shape) {
  return Tensor::Zeros(DType::kFloat, shape);
}

const SourceMap kGoodTensors = {
    {"base_model.model.a.fc.lora_A.weight", FloatZeros({2, 3})},
    {"base_model.model.a.fc.lora_B.weight", FloatZeros({4, 2})},
    {"base_model.model.head.weight", FloatZeros({5, 4})}};

std::string FolderRefusal(const std::string& config, const SourceMap& tensors) {
  const TempDir dir;
  WriteText(dir / "adapter_config.json", config);
  WriteSafetensors(dir / "adapter_model.safetensors", tensors);
  return ErrorOf([&] { ReadAdapterFolder(dir.path()); });
}

TEST(AdapterFolder, HasSettingsAdaptersAndParameters) {
  const TempDir dir;
  WriteText(dir / "adapter_config.json", kGoodConfig);
  WriteSafetensors(dir / "adapter_model.safetensors", kGoodTensors);
  const AdapterFolder read = ReadAdapterFolder(dir.path());
  EXPECT_EQ(LoraText(read.spec),
            "r=2,alpha=4,targets=a.fc,dropout=0.1,rslora,"
            "from=" +
                dir.path());
  EXPECT_EQ(read.adapters.size(), 2u);
  EXPECT_TRUE(read.adapters.contains("a.fc.lora_B.weight"));
  EXPECT_EQ(read.parameters.size(), 1u);
  EXPECT_TRUE(read.parameters.contains("head.weight"));
}

TEST(AdapterFolder, IsReadBack) {
  const TempDir dir;
  LoraSpec spec = ParseLora("r=2,alpha=0.5,targets=fc,init=gaussian");
  Tensor a = FloatZeros({2, 3});
  a.data<float>()[4] = 7;
  WriteAdapterFolder(
      dir / "new/adapter", spec, {.modules = {"fc"}},
      {{"fc.lora_A.weight", a}, {"fc.lora_B.weight", FloatZeros({4, 2})}});
  const AdapterFolder read = ReadAdapterFolder(dir / "new/adapter");
  EXPECT_EQ(read.spec.alpha, 0.5);
  EXPECT_EQ(read.spec.targets, std::vector<std::string>{"fc"});
  const Tensor again = read.adapters.at("fc.lora_A.weight").Pull();
  EXPECT_EQ(again.data<float>()[4], 7);
}

TEST(AdapterFolder, RefusesConfigsByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"[", "expected the config of an adapter"},
      {"[]", "expected the config of an adapter, a JSON object"},
      {R"({"peft_type": "IA3"})", "expected peft_type LORA, got \"IA3\""},
      {R"({"peft_type": "LORA"})", "expected r from 1 to 65536, got null"},
      {R"({"peft_type": "LORA", "r": 2.5})", "got 2.5"},
      {R"({"peft_type": "LORA", "r": 2, "lora_alpha": "x"})", "as lora_alpha"},
      {R"({"peft_type": "LORA", "r": 2, "use_dora": true})",
       "sets use_dora, which this program does not have, to true"},
      {R"({"peft_type": "LORA", "r": 2, "rank_pattern": {"fc": 4}})",
       "sets rank_pattern"},
      {R"({"peft_type": "LORA", "r": 2, "bias": "all"})", "sets bias"},
      {R"({"peft_type": "LORA", "r": 2, "init_lora_weights": "pissa"})",
       "got \"pissa\""},
  };
  for (const auto& [config, part] : cases) {
    const std::string message = FolderRefusal(config, kGoodTensors);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(AdapterFolder, RefusesTensorsByName) {
  const auto expect = [](const SourceMap& tensors, const char* part) {
    const std::string message = FolderRefusal(kGoodConfig, tensors);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  SourceMap changed = kGoodTensors;
  changed.erase("base_model.model.a.fc.lora_B.weight");
  expect(changed,
         "expected base_model.model.a.fc.lora_B.weight beside its "
         "counterpart, got none");
  changed = kGoodTensors;
  changed.insert_or_assign("base_model.model.a.fc.lora_A.weight",
                           TensorSource(FloatZeros({3, 3})));
  expect(changed,
         "lora_A.weight as a matrix of floats with 2 rows, got "
         "float[3,3]");
  changed = kGoodTensors;
  changed.insert_or_assign("a.fc.lora_A.weight",
                           TensorSource(FloatZeros({2, 3})));
  expect(changed,
         "expected names that begin with base_model.model., got "
         "\"a.fc.lora_A.weight\"");
  expect({{"base_model.model.head.weight", FloatZeros({2})}},
         "expected adapters, got none");
  ExpectError([] { ReadAdapterFolder("/nowhere/adapter"); },
              "expected the folder of an adapter");
}

}  // namespace
}  // namespace onnx_fp8
