// SPDX-License-Identifier: Apache-2.0
#include "training/step/adapters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "data/adapter_folder.h"
#include "data/safetensors.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/make_provider.h"
#include "training/step/pipelines.h"

namespace onnx_fp8 {
namespace {

constexpr char kBoth[] = "r=2,alpha=4,targets=fc,out";

SessionOptions LoraOptions(const std::string& model, const std::string& lora,
                           const std::string& recipe = "off") {
  SessionOptions options = Options(model, recipe);
  options.lora = lora;
  return options;
}

// All adapters become random.
TensorMap RandomAdapters(TrainingSession& session) {
  TensorMap adapters;
  uint64_t seed = 50;
  for (const ParameterInfo& info : session.Parameters()) {
    if (info.trained) adapters[info.name] = Random(info.shape, seed++);
  }
  session.SetWeights(adapters);
  return adapters;
}

void ExpectNearTensors(const Tensor& a, const Tensor& b, float bound) {
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], bound) << i;
  }
}

// The classifier of WriteMlp with 2 · B A added to the weights by the graph.
std::string WriteAddedMlp(const TempDir& dir, const TensorMap& adapters) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  const auto weight = [&](const std::string& module, const Shape& shape,
                          uint64_t seed) {
    Value* w = graph.AddInitializer(module + ".weight", Random(shape, seed));
    const auto part = [&](const char* name) {
      const std::string full = module + name;
      return graph.AddInitializer(full, adapters.at(full).Clone());
    };
    Value* ba =
        b.Op("MatMul", {part(".lora_B.weight"), part(".lora_A.weight")});
    Value* two = b.Constant(Tensor::Scalar(2.0f));
    return b.Add(w, b.Mul(b.Transpose(ba, {1, 0}), two));
  };
  Value* h = b.Op("MatMul", {x, weight("fc", {kIn, kHidden}, 1)});
  h = b.Op("Relu", {h});
  Value* y = b.Op("MatMul", {h, weight("out", {kHidden, kClasses}, 4)});
  graph.outputs = {y};
  std::string path = dir / "added.onnx";
  WriteModel(graph, path);
  return path;
}

TEST(Adapters, ZerosInBChangeNothing) {
  const TempDir dir;
  const std::string model = WriteMlp(dir, false);
  auto plain = TrainingSession::Create(Options(model));
  for (const char* more : {"", ",dropout=0.5", ",init=gaussian"}) {
    auto lora =
        TrainingSession::Create(LoraOptions(model, std::string(kBoth) + more));
    EXPECT_EQ(lora->Eval(Batch(1)).loss, plain->Eval(Batch(1)).loss);
    const TensorMap weights = lora->ReadWeights();
    const Tensor& a = weights.at("fc.lora_A.weight");
    const float* begin = a.data<float>();
    EXPECT_NE(begin[0], begin[1]);
    const float bound = 1 / std::sqrt(static_cast<float>(kIn));
    const bool uniform = std::string(more) != ",init=gaussian";
    EXPECT_EQ(uniform,
              std::ranges::all_of(begin, begin + a.size(), [&](float x) {
                return std::abs(x) <= bound;
              }));
  }
  auto drawn = TrainingSession::Create(
      LoraOptions(model, std::string(kBoth) + ",init=false"));
  EXPECT_NE(drawn->Eval(Batch(1)).loss, plain->Eval(Batch(1)).loss);
}

TEST(Adapters, GradientsEqualTheFormulasOnWeights) {
  const TempDir dir;
  auto lora = TrainingSession::Create(LoraOptions(WriteMlp(dir, false), kBoth));
  const TensorMap adapters = RandomAdapters(*lora);
  SessionOptions options = Options(WriteAddedMlp(dir, adapters));
  options.freeze = {"fc.weight", "out.weight"};
  options.train = {"*lora_*"};
  auto added = TrainingSession::Create(options);
  const GradientResult a = lora->Gradients(Batch(1), false);
  const GradientResult b = added->Gradients(Batch(1), false);
  EXPECT_NEAR(a.loss, b.loss, 1e-5);
  ASSERT_EQ(a.gradients.size(), 4u);
  for (const auto& [name, gradient] : a.gradients) {
    ExpectNearTensors(gradient, b.gradients.at(name), 1e-5f);
  }
}

TEST(Adapters, AStepMovesNothingElse) {
  const TempDir dir;
  SessionOptions options = LoraOptions(WriteMlp(dir, true), "r=2,targets=fc");
  options.train = {"bn.weight"};
  auto session = TrainingSession::Create(options);
  TensorMap before;
  for (const auto& [name, t] : session->ReadWeights()) before[name] = t.Clone();
  session->Step(Batch(1), 1e-2);
  session->Step(Batch(2), 1e-2);
  for (const auto& [name, tensor] : session->ReadWeights()) {
    const bool moves = name.find("lora_") != std::string::npos ||
                       name == "bn.weight" ||
                       name.find("running") < name.size();
    EXPECT_NE(Same({{name, tensor}}, before), moves) << name;
  }
}

TEST(Adapters, ExportsMergeThem) {
  const TempDir dir;
  const std::string model = WriteMlp(dir, false);
  auto lora = TrainingSession::Create(LoraOptions(model, kBoth));
  const TensorMap adapters = RandomAdapters(*lora);
  const float loss = lora->Eval(Batch(1)).loss;
  lora->ExportOnnx(dir / "merged.onnx");
  lora->ExportSafetensors(dir / "merged.safetensors");
  auto merged = TrainingSession::Create(Options(dir / "merged.onnx"));
  EXPECT_NEAR(merged->Eval(Batch(1)).loss, loss, 1e-5);
  const TensorMap file = ReadSafetensors(dir / "merged.safetensors");
  ASSERT_EQ(file.size(), 2u);
  const float* a = adapters.at("fc.lora_A.weight").data<float>();
  const float* b = adapters.at("fc.lora_B.weight").data<float>();
  const Tensor w = Random({kIn, kHidden}, 1);
  for (int64_t i = 0; i < kIn; ++i) {
    for (int64_t o = 0; o < kHidden; ++o) {
      const float delta = b[o * 2] * a[i] + b[o * 2 + 1] * a[kIn + i];
      const int64_t at = i * kHidden + o;
      ASSERT_NEAR(file.at("fc.weight").data<float>()[at],
                  w.data<float>()[at] + 2 * delta, 1e-6);
    }
  }
}

TEST(Adapters, AFolderGoesOn) {
  const TempDir dir;
  const std::string model = WriteMlp(dir, false);
  auto first = TrainingSession::Create(LoraOptions(model, kBoth));
  const TensorMap adapters = RandomAdapters(*first);
  first->ExportAdapter(dir / "adapter");
  auto next = TrainingSession::Create(LoraOptions(model, dir / "adapter"));
  const TensorMap weights = next->ReadWeights();
  for (const auto& [name, tensor] : adapters) {
    EXPECT_TRUE(Same({{name, tensor}}, weights)) << name;
  }
  EXPECT_EQ(next->Eval(Batch(1)).loss, first->Eval(Batch(1)).loss);
  ExpectError(
      [&] { TrainingSession::Create(Options(model))->ExportAdapter("x"); },
      "expected a run with `lora` for a folder of adapters");
}

TEST(Adapters, AFolderMustFit) {
  const TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const auto refused = [&](const std::string& lora, const char* part) {
    ExpectError([&] { TrainingSession::Create(LoraOptions(model, lora)); },
                part);
  };
  const auto zeros = [](const Shape& shape) {
    return Tensor::Zeros(DType::kFloat, shape);
  };
  WriteAdapterFolder(dir / "a", ParseLora("r=2,alpha=4,targets=fc"), {},
                     {{"fc.lora_A.weight", zeros({2, kIn})},
                      {"fc.lora_B.weight", zeros({kHidden, 2})}});
  const std::string from = ",from=" + (dir / "a");
  refused(kBoth + from, "the file lacks out.lora_A.weight, out.lora_B.weight");
  refused("r=2,alpha=4,targets=out" + from, "the model lacks fc.lora_A.weight");
  refused("r=2,alpha=8,targets=fc" + from,
          "expected an adapter of r=2 and alpha=8, as `lora` says, got r=2 and "
          "alpha=4");
  WriteAdapterFolder(dir / "b", ParseLora("r=2,alpha=4,targets=fc"), {},
                     {{"fc.lora_A.weight", zeros({2, kIn + 1})},
                      {"fc.lora_B.weight", zeros({kHidden, 2})}});
  refused(dir / "b", "expected fc.lora_A.weight of shape [2,8], got [2,9]");
}

TEST(Adapters, CheckpointsHoldThem) {
  const TempDir dir;
  const SessionOptions options =
      LoraOptions(WriteMlp(dir, false), std::string(kBoth) + ",dropout=0.5");
  auto session = TrainingSession::Create(options);
  session->Step(Batch(1), 1e-2);
  session->Save(dir / "run");
  const float next = session->Step(Batch(2), 1e-2).loss;
  auto again = TrainingSession::Create(options);
  again->Restore(dir / "run");
  EXPECT_EQ(again->Step(Batch(2), 1e-2).loss, next);
  ExpectSame(session->ReadWeights(), again->ReadWeights());
}

TEST(Adapters, FilesOfWeightsNeedNotHaveThem) {
  const TempDir dir;
  SessionOptions options = LoraOptions(WriteMlp(dir, false), kBoth);
  WriteSafetensors(dir / "w.safetensors",
                   {{"fc.weight", Random({kIn, kHidden}, 9)},
                    {"out.weight", Random({kHidden, kClasses}, 10)}});
  options.weights = dir / "w.safetensors";
  auto lora = TrainingSession::Create(options);
  for (const std::string& note : lora->Notes()) {
    EXPECT_EQ(note.find("lora_A"), std::string::npos) << note;
  }
  options.lora.clear();
  auto plain = TrainingSession::Create(options);
  EXPECT_EQ(lora->Eval(Batch(1)).loss, plain->Eval(Batch(1)).loss);
}

TEST(Adapters, DropoutIsForTrainingAlone) {
  const TempDir dir;
  const std::string model = WriteMlp(dir, false);
  auto whole = TrainingSession::Create(LoraOptions(model, kBoth));
  auto dropped = TrainingSession::Create(
      LoraOptions(model, std::string(kBoth) + ",dropout=0.5"));
  RandomAdapters(*whole);
  RandomAdapters(*dropped);
  EXPECT_EQ(whole->Eval(Batch(1)).loss, dropped->Eval(Batch(1)).loss);
  EXPECT_NE(whole->Step(Batch(1), 0).loss, dropped->Step(Batch(1), 0).loss);
}

TEST(Adapters, ComputeInHighPrecisionUnlessARecipeIsForThem) {
  const TempDir dir;
  const auto keys = [&](SessionOptions options) {
    auto session = TrainingSession::Create(options);
    session->Step(Batch(1), 1e-2);
    int64_t adapters = 0, layers = 0;
    for (const ScaleInfo& scale : session->Scales()) {
      // A gradient that both read has the name of its first reader.
      if (scale.key.find("/grad_output/") < scale.key.size()) continue;
      ++(scale.key.find("lora_") < scale.key.size() ? adapters : layers);
    }
    EXPECT_GT(layers, 0);
    return adapters;
  };
  SessionOptions options = LoraOptions(WriteMlp(dir, false), kBoth, "delayed");
  EXPECT_EQ(keys(options), 0);
  options.filter.recipes = {{"*lora_*", options.recipe}};
  EXPECT_GT(keys(options), 0);
}

TEST(Adapters, RanksTrainThemTogether) {
  const TempDir dir;
  SessionOptions options = LoraOptions(WriteMlp(dir, false), kBoth);
  const std::vector<Batches> steps = {{Batch(1)}, {Batch(2)}};
  const TensorMap alone = TrainSteps(options, steps).weights;
  options.shard.what = Sharding::kOptimizer;
  const TensorMap both = TrainRanks(2, options, steps)[0].weights;
  for (const auto& [name, tensor] : alone) {
    ExpectNearTensors(tensor, both.at(name), 1e-4f);
  }
}

TEST(Adapters, AreRefusedBesidePartsOfLayers) {
  const TempDir dir;
  const SessionOptions options = LoraOptions(WriteMlp(dir, false), kBoth);
  PassRunner runner = MakePassRunner(options);
  const TrainingModel model = LoadTrainingModel(options, runner);
  const auto evaluator = MakeEvaluator();
  ExpectError(
      [&] { MakeStepSource(options, model, *evaluator, runner, {.tp = 2}); },
      "`lora`: expected ranks that compute whole layers (tp=1), got tp=2");
}

TEST(Adapters, TheNoteHasTheirShare) {
  const TempDir dir;
  auto session = TrainingSession::Create(
      LoraOptions(WriteMlp(dir, false), "r=2,alpha=4,targets=fc"));
  // 8 · 16 + 16 · 4 numbers of the model, 2 · (8 + 16) of the adapter.
  const std::vector<std::string> notes = session->Notes();
  const bool said = std::ranges::any_of(notes, [](const std::string& note) {
    return note.starts_with(
        "`lora`: 1 layer has an adapter of r=2, scaling 2; the run trains 48 "
        "of 240 numbers (20 %)");
  });
  EXPECT_TRUE(said) << notes.back();
  EXPECT_NE(session->Trains().find("trains 2 of 4 parameters, 48 numbers "
                                   "(adapters of `lora`)"),
            std::string::npos)
      << session->Trains();
}

}  // namespace
}  // namespace onnx_fp8
