// SPDX-License-Identifier: Apache-2.0
//
// Weights that programs serve: the codes are the ones that quantizers make of a
// run's weights, and a served forward computes what an evaluation computes.
#include "training/step/served_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/scaled_weights.h"
#include "data/served_folder.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/float8.h"
#include "tests/training/small_model.h"
#include "training/make_provider.h"

namespace onnx_fp8 {
namespace {

// Weights [out, in], as PyTorch keeps them. The second layer's sides are no
// multiples of 128.
constexpr int64_t kServedWidth = 256;

std::string WriteTorchMlp(const TempDir& dir) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  const auto linear = [&](Value* in, const char* name, int64_t from, int64_t to,
                          uint64_t seed) {
    Value* w = graph.AddInitializer(name, Random({to, from}, seed));
    return b.Op("MatMul", {in, b.Transpose(w, {1, 0})});
  };
  Value* h = b.Op("Relu", {linear(x, "fc.weight", kIn, kServedWidth, 1)});
  graph.outputs = {linear(h, "out.weight", kServedWidth, kClasses, 2)};
  std::string path = dir / "torch.onnx";
  WriteModel(graph, path);
  return path;
}

std::unique_ptr<TrainingSession> AfterTwoSteps(const SessionOptions& options) {
  auto session = TrainingSession::Create(options);
  for (uint64_t seed : {1, 2}) session->Step(Batch(seed), 1e-2);
  return session;
}

// One op of ours on the weight.
std::vector<Tensor> QuantizedBy(const std::string& op, const Tensor& w,
                                const std::vector<Tensor>& more,
                                Attributes attributes) {
  Graph graph;
  Builder b(graph);
  std::vector<Value*> in = {graph.AddInitializer("w", w)};
  std::vector<Tensor> tensors = {w};
  for (const Tensor& tensor : more) {
    in.push_back(graph.AddInitializer(Concat("more", in.size()), tensor));
    tensors.push_back(tensor);
  }
  attributes["to"] = static_cast<int64_t>(DType::kE4M3);
  attributes["q_max"] = Float8Max(DType::kE4M3);
  const Node& node =
      *b.Ops(op, in, 3, std::move(attributes), kDomain)[0]->producer;
  return MakeEvaluator()->Evaluate(node, tensors);
}

Attributes BlockAttributes(int64_t rows, int64_t columns, int64_t pow2) {
  return {{"block_rows", rows},
          {"block_columns", columns},
          {"pow2", pow2},
          {"scale_to", static_cast<int64_t>(DType::kFloat)}};
}

float KeptScale(const TrainingSession& session, const std::string& name,
                const std::string& operand) {
  for (const ScaleInfo& scale : session.Scales()) {
    if (scale.key.starts_with(Concat(name, "/forward/", operand, "/"))) {
      return scale.scale;
    }
  }
  Fail("no kept scale of ", name);
}

// What the recipe's quantizer makes of the weight.
std::vector<Tensor> Quantized(const std::string& recipe, const Tensor& w,
                              const TrainingSession& session,
                              const std::string& name) {
  if (recipe == "tensorwise") return QuantizedBy("QuantizeTensor", w, {}, {});
  if (recipe == "rowwise") {
    return QuantizedBy("QuantizeBlock", w, {}, BlockAttributes(1, 0, 1));
  }
  if (recipe == "blockwise") {
    return QuantizedBy("QuantizeBlock", w, {}, BlockAttributes(128, 128, 0));
  }
  return QuantizedBy("QuantizeWith", w,
                     {Tensor::Scalar(KeptScale(session, name, "weight"))}, {});
}

// The model of WriteTorchMlp, trained, as a folder.
void ExpectCodesOfQuantizers(const std::string& recipe, DType dtype) {
  const TempDir dir;
  SessionOptions options = Options(WriteTorchMlp(dir), recipe);
  options.primary_weights = "fp8";
  options.dtype = dtype;
  auto session = AfterTwoSteps(options);
  session->ExportServed(
      {.format = ServedFormat::kHuggingFaceFp8, .path = dir / "out"});
  const WeightFiles read = ReadWeightFiles(dir / "out");
  const bool keeps = recipe == "delayed";
  EXPECT_EQ(read.tensors.size(), keeps ? 6u : 4u);
  const TensorMap weights = session->ReadWeights();
  for (const char* module : {"fc", "out"}) {
    const std::string name = Concat(module, ".weight");
    const Tensor rounded =
        ConvertTo(ConvertTo(weights.at(name), dtype), DType::kFloat);
    const auto made = Quantized(recipe, rounded, *session, name);
    EXPECT_TRUE(Identical(read.tensors.at(name), made[0])) << module;
    const Tensor& scale = read.tensors.at(Concat(module, ".weight_scale"));
    EXPECT_TRUE(Identical(scale.Reshaped(made[1].shape()), made[1]));
    if (!keeps) continue;
    EXPECT_TRUE(
        Identical(read.tensors.at(Concat(module, ".input_scale")),
                  Tensor::From<float>(
                      {1}, std::vector{KeptScale(*session, name, "input")})));
  }
}

TEST(ServedModel, AFolderHasTheCodesOfTheQuantizers) {
  for (const char* recipe : {"tensorwise", "rowwise", "blockwise", "delayed"}) {
    SCOPED_TRACE(recipe);
    ExpectCodesOfQuantizers(recipe, DType::kFloat);
  }
}

// Autocast rounds the transposes of the weights.
TEST(ServedModel, AFolderHasTheCodesOfRoundedWeights) {
  for (const char* recipe : {"rowwise", "delayed"}) {
    SCOPED_TRACE(recipe);
    ExpectCodesOfQuantizers(recipe, DType::kBFloat16);
  }
}

// The first layer's 8 inputs are not 32 numbers for one scale.
TEST(ServedModel, AFolderHasTheExponentsOfGroups) {
  const TempDir dir;
  auto session = AfterTwoSteps(Options(WriteTorchMlp(dir), "mxfp8"));
  const auto remarks = session->ExportServed(
      {.format = ServedFormat::kHuggingFaceFp8, .path = dir / "out"});
  EXPECT_EQ(remarks.at(0),
            "fc runs in FP8 and is written without codes: its inputs are no "
            "multiple of 32");
  const WeightFiles read = ReadWeightFiles(dir / "out");
  EXPECT_EQ(read.tensors.size(), 3u);
  const Tensor weight = session->ReadWeights().at("out.weight");
  Attributes attributes = BlockAttributes(1, 32, 1);
  attributes["scale_to"] = static_cast<int64_t>(DType::kE8M0);
  const auto made = QuantizedBy("QuantizeBlock", weight, {}, attributes);
  EXPECT_TRUE(Identical(read.tensors.at("out.weight"), made[0]));
  const Tensor& scale = read.tensors.at("out.weight_scale");
  EXPECT_EQ(scale.dtype(), DType::kUInt8);
  ASSERT_EQ(scale.shape(), made[1].shape());
  EXPECT_EQ(std::memcmp(scale.raw(), made[1].raw(), scale.bytes()), 0);
}

// Some weights are large, and codes and scales lie at two places of a file.
TEST(ServedModel, AFolderQuantizesEachWeightOnce) {
  for (const char* recipe : {"rowwise", "blockwise"}) {
    const TempDir dir;
    const SessionOptions options = Options(WriteTorchMlp(dir), recipe);
    PassRunner runner;
    const TrainingModel model = LoadTrainingModel(options, runner);
    const auto evaluator = MakeEvaluator();
    std::map<std::string, int> pulls;
    SourceMap weights;
    for (const char* name : {"fc.weight", "out.weight"}) {
      const Tensor data = model.graph->Find(name)->data;
      weights.emplace(name,
                      TensorSource(data.dtype(), data.shape(), [=, &pulls] {
                        ++pulls[name];
                        return data;
                      }));
    }
    SourceMap state = weights;
    ServedModel served({options, model,
                        MakeStepSource(options, model, *evaluator, runner).fp8,
                        std::nullopt, weights, *evaluator, runner});
    ServedTensors tensors;
    std::vector<std::string> remarks;
    tensors.layers = served.TakeLayers(&state, &remarks);
    WriteServedFolder(dir / "out", "", tensors);
    EXPECT_EQ(pulls, (std::map<std::string, int>{{"fc.weight", 1},
                                                 {"out.weight", 1}}));
    EXPECT_EQ(ReadWeightFiles(dir / "out").tensors.size(), 4u);
  }
}

TEST(ServedModel, AnOnnxFileComputesWhatAnEvaluationComputes) {
  for (const char* recipe : {"tensorwise", "blockwise", "delayed"}) {
    SCOPED_TRACE(recipe);
    const TempDir dir;
    auto session = AfterTwoSteps(Options(WriteTorchMlp(dir), recipe));
    session->ExportServed(
        {.format = ServedFormat::kOnnxFp8, .path = dir / "served.onnx"});
    auto graph = ReadModel(dir / "served.onnx", {.as_is = true});
    int codes = 0;
    for (const Value* value : graph->Initializers()) {
      codes += value->dtype == DType::kE4M3;
      EXPECT_LT(value->dtype == DType::kFloat ? value->data.size() : 0,
                kServedWidth)
          << value->name;
    }
    EXPECT_EQ(codes, 2);
    EXPECT_TRUE(graph->state.empty());
    auto served = TrainingSession::Create(Options(dir / "served.onnx"));
    EXPECT_NEAR(served->Eval(Batch(3)).loss, session->Eval(Batch(3)).loss,
                1e-6);
  }
}

TEST(ServedModel, RoundingOfAForwardIsSaid) {
  const TempDir dir;
  SessionOptions options = Options(WriteTorchMlp(dir), "rowwise");
  options.dtype = DType::kBFloat16;
  auto session = AfterTwoSteps(options);
  const auto remarks = session->ExportServed(
      {.format = ServedFormat::kOnnxFp8, .path = dir / "served.onnx"});
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_NE(remarks[0].find("may be rounded to a neighbor in bfloat16"),
            std::string::npos);
}

TEST(ServedModel, ALayerThatAFolderCannotHoldStaysAndIsNamed) {
  const TempDir dir;
  SessionOptions options = Options(WriteTorchMlp(dir), "rowwise");
  options.filter.recipes = {{"out", ParseRecipe("rowwise,w:dyn_row_e5m2_p2")}};
  auto session = AfterTwoSteps(options);
  const auto remarks = session->ExportServed(
      {.format = ServedFormat::kHuggingFaceFp8, .path = dir / "out"});
  EXPECT_EQ(remarks.at(0),
            "out runs in FP8 and is written without codes: the codes are no "
            "e4m3");
  const WeightFiles read = ReadWeightFiles(dir / "out");
  EXPECT_TRUE(Identical(read.tensors.at("out.weight"),
                        session->ReadWeights().at("out.weight")));
  EXPECT_NE(ReadText(dir / "out/config.json").find("\"out\""),
            std::string::npos);
}

TEST(ServedModel, AFolderWithoutCodesIsRefused) {
  const TempDir dir;
  SessionOptions options = Options(WriteTorchMlp(dir), "rowwise");
  options.recipe = ParseRecipe("rowwise,w:dyn_row_e5m2_p2");
  auto session = AfterTwoSteps(options);
  ExpectError(
      [&] {
        session->ExportServed(
            {.format = ServedFormat::kHuggingFaceFp8, .path = dir / "out"});
      },
      "expected a layer whose codes a folder can hold, got none");
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

TEST(ServedModel, HalvesAndRunsWithoutFp8) {
  const TempDir dir;
  auto session = TrainingSession::Create(Options(WriteTorchMlp(dir)));
  session->ExportServed(
      {.format = ServedFormat::kBFloat16, .path = dir / "halves"});
  const Tensor half = ReadWeightFiles(dir / "halves").tensors.at("fc.weight");
  EXPECT_TRUE(Identical(
      half, ConvertTo(Random({kServedWidth, kIn}, 1), DType::kBFloat16)));
  ExpectError(
      [&] {
        session->ExportServed(
            {.format = ServedFormat::kHuggingFaceFp8, .path = dir / "out"});
      },
      "expected a run with layers in FP8, got none");
}

// The codes are of the merged weights.
TEST(ServedModel, AdaptersAreMergedBefore) {
  const TempDir dir;
  SessionOptions options = Options(WriteTorchMlp(dir), "tensorwise");
  options.lora = "r=2,alpha=4,targets=fc";
  auto session = AfterTwoSteps(options);
  const auto remarks = session->ExportServed(
      {.format = ServedFormat::kHuggingFaceFp8, .path = dir / "out"});
  EXPECT_NE(remarks.at(0).find("adapters are merged"), std::string::npos);
  session->ExportSafetensors(dir / "merged.safetensors");
  const Tensor merged =
      ReadWeightFiles(dir / "merged.safetensors").tensors.at("fc.weight");
  EXPECT_TRUE(
      Identical(ReadWeightFiles(dir / "out").tensors.at("fc.weight"),
                QuantizedBy("QuantizeTensor", merged.Clone(), {}, {})[0]));
}

}  // namespace
}  // namespace onnx_fp8
