// SPDX-License-Identifier: Apache-2.0
//
// Steps of several micro-batches: of one shape or of several, after errors.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "data/safetensors.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "tests/training/files.h"
#include "tests/training/small_model.h"
#include "training/state/checkpoint.h"
#include "training/state/session_state.h"

namespace onnx_fp8 {
namespace {

class Accumulation : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Recipes, Accumulation,
                         testing::Values("off", "tensorwise", "delayed"),
                         [](const auto& info) { return info.param; });

// (g + g) / 2 is exact.
TEST_P(Accumulation, OfABatchTwiceIsThatBatch) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), GetParam());
  auto one = TrainingSession::Create(options);
  options.grad_accum = 2;
  auto two = TrainingSession::Create(options);
  for (uint64_t step = 0; step < 4; ++step) {
    TensorMap batch = Batch(step);
    StepResult a = one->Step(batch, 1e-2);
    StepResult b = two->Step(Batches{batch, batch}, 1e-2);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  ExpectSame(Weights(*one, dir), Weights(*two, dir));
}

// The same with four labels in each: sums over labels are exact multiples.
TEST_P(Accumulation, ByTokensOfABatchTwiceIsThatBatch) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), GetParam());
  auto one = TrainingSession::Create(options);
  options.grad_accum = 2;
  options.grad_accum_by = "tokens";
  auto two = TrainingSession::Create(options);
  for (uint64_t step = 0; step < 4; ++step) {
    TensorMap batch = Batch(step, 4);
    StepResult a = one->Step(batch, 1e-2);
    StepResult b = two->Step(Batches{batch, batch}, 1e-2);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  ExpectSame(Weights(*one, dir), Weights(*two, dir));
}

// It is the mean of its batches, and the next group is whole again.
TEST_P(Accumulation, AGroupMayBeSmaller) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), GetParam());
  options.grad_accum = 2;
  auto two = TrainingSession::Create(options);
  options.grad_accum = 3;
  auto three = TrainingSession::Create(options);
  EXPECT_TRUE(three->TakesSmallerGroups());
  for (uint64_t step = 0; step < 3; ++step) {
    const Batches batches = {Batch(step), Batch(step + 9)};
    StepResult a = two->Step(batches, 1e-2);
    StepResult b = three->Step(batches, 1e-2);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  ExpectSame(Weights(*two, dir), Weights(*three, dir));
  three->Step(Batches{Batch(1), Batch(2), Batch(3)}, 1e-2);
  three->Save(dir / "run");
  EXPECT_EQ(LoadLatestCheckpoint(dir / "run", kAnyModel)->next_batch, 9);
  auto resumed = TrainingSession::Create(options);
  resumed->Restore(dir / "run");
  for (auto* session : {&three, &resumed}) {
    (*session)->Step(Batches{Batch(4)}, 1e-2);
  }
  ExpectSame(Weights(*three, dir), Weights(*resumed, dir));
  resumed->Save(dir / "later");
  EXPECT_EQ(LoadLatestCheckpoint(dir / "later", kAnyModel)->next_batch, 10);
  for (const size_t count : {size_t{0}, size_t{4}}) {
    ExpectError([&] { three->Step(Batches(count, Batch(1)), 1e-2); },
                "expected 1 to 3 micro-batches a step, got ");
  }
}

// A step of one batch rounds its weights itself.
TEST_P(Accumulation, ReadsCopiesOfWeightsIn16Bits) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), GetParam());
  options.dtype = DType::kBFloat16;
  auto one = TrainingSession::Create(options);
  options.grad_accum = 2;
  auto two = TrainingSession::Create(options);
  for (uint64_t step = 0; step < 4; ++step) {
    TensorMap batch = Batch(step);
    StepResult a = one->Step(batch, 1e-2);
    StepResult b = two->Step(Batches{batch, batch}, 1e-2);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  ExpectSame(Weights(*one, dir), Weights(*two, dir));
}

TEST_P(Accumulation, ResumesBitForBit) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), GetParam());
  options.grad_accum = 2;
  auto whole = TrainingSession::Create(options);
  auto first = TrainingSession::Create(options);
  auto step = [&](TrainingSession& session, uint64_t i) {
    return session.Step(Batches{Batch(2 * i), Batch(2 * i + 1)}, 1e-2).loss;
  };
  for (uint64_t i = 0; i < 2; ++i) EXPECT_EQ(step(*whole, i), step(*first, i));
  first->Save(dir / "run");
  auto second = TrainingSession::Create(options);
  second->Restore(dir / "run");
  for (uint64_t i = 2; i < 4; ++i) EXPECT_EQ(step(*whole, i), step(*second, i));
  ExpectSame(Weights(*whole, dir), Weights(*second, dir));
}

TEST_P(Accumulation, AnErrorLeavesStateAsItWas) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), GetParam());
  options.grad_accum = 2;
  auto disturbed = TrainingSession::Create(options);
  auto other = TrainingSession::Create(options);
  TensorMap bad = Batch(9);
  bad["labels"].data<int64_t>()[3] = kClasses;
  for (uint64_t i = 0; i < 2; ++i) {
    EXPECT_THROW(disturbed->Step(Batches{Batch(7), bad}, 1e-2), Error);
    EXPECT_EQ(disturbed->step(), static_cast<int64_t>(i));
    StepResult a = disturbed->Step(Batches{Batch(i), Batch(i + 1)}, 1e-2);
    StepResult b = other->Step(Batches{Batch(i), Batch(i + 1)}, 1e-2);
    EXPECT_EQ(a.loss, b.loss);
  }
  ExpectSame(Weights(*disturbed, dir), Weights(*other, dir));
}

// By the profile: 2 weights once; inputs and output gradients (one input copy
// serves forward and wgrad) at each of 3 micro-batches.
TEST(Session, QuantizesWeightsOncePerStep) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  options.grad_accum = 3;
  options.profile = dir / "profile.json";
  auto session = TrainingSession::Create(options);
  session->Step(Batches{Batch(1), Batch(2), Batch(3)}, 1e-2);
  session->Step(Batches{Batch(4), Batch(5), Batch(6)}, 1e-2);
  session.reset();
  int quantized = 0;
  auto events = nlohmann::json::parse(ReadText(dir / "profile.json"));
  for (const auto& event : events) {
    if (event["args"]["op"] == "onnx_fp8.QuantizeTensor") ++quantized;
  }
  EXPECT_EQ(quantized, 2 * (2 + 3 * 4));
}

// RoundTo nodes that a step runs, by the profile.
int RoundingsOf(const std::string& model, int64_t grad_accum,
                const TempDir& dir) {
  SessionOptions options = Options(model);
  options.dtype = DType::kBFloat16;
  options.grad_accum = grad_accum;
  options.profile = dir / "profile.json";
  auto session = TrainingSession::Create(options);
  session->Step(Batches(static_cast<size_t>(grad_accum), Batch(1)), 1e-2);
  session.reset();
  auto events = nlohmann::json::parse(ReadText(dir / "profile.json"));
  return static_cast<int>(std::ranges::count_if(events, [](const auto& event) {
    return event["args"]["op"] == "onnx_fp8.RoundTo";
  }));
}

// 2 weights once; the others at each of 3 micro-batches.
TEST(Session, RoundsWeightsOncePerStep) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const int others = RoundingsOf(model, 1, dir) - 2;
  EXPECT_EQ(RoundingsOf(model, 3, dir), 2 + 3 * others);
}

// Batches of more than 4 go through a layer that others skip. Graphs of small
// batches lack a parameter, products and scales.
std::string WriteBranching(const TempDir& dir) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  auto weight = [&](const char* name, const Shape& shape, uint64_t seed) {
    return graph.AddInitializer(name, Random(shape, seed));
  };
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  Value* h = b.Op("MatMul", {x, weight("fc.weight", {kIn, kHidden}, 1)});
  weight("big.weight", {kHidden, kHidden}, 2);
  auto branch = [&](const std::string& op, bool weighted) {
    auto body = std::make_shared<Graph>();
    std::vector<Value*> in = {body->AddCaptured(h->name)};
    if (weighted) in.push_back(body->AddCaptured("big.weight"));
    body->outputs = {body->AddNode(op, in, {op + ".y"})->out(0)};
    return body;
  };
  Value* size = b.Op("Gather", {b.Op("Shape", {x}), b.Int(0)});
  Value* y = b.Op("If", {b.Op("Greater", {size, b.Int(4)})},
                  {{"then_branch", branch("MatMul", true)},
                   {"else_branch", branch("Relu", false)}});
  y->dtype = DType::kFloat;
  y = b.Op("MatMul", {y, weight("out.weight", {kHidden, kClasses}, 4)});
  y->dtype = DType::kFloat;
  y->shape = Shape{-1, kClasses};
  graph.outputs = {y};
  std::string path = dir / "branching.onnx";
  WriteModel(graph, path);
  return path;
}

// SGD of rate 1 and its gradient, by hand.
class Shapes : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    options_ = Options(WriteBranching(dir_), GetParam());
    options_.optimizer.kind = "sgd";
  }

  // The weights after a step on these batches, starting from the file's.
  TensorMap Expected(const Batches& batches) {
    auto session = TrainingSession::Create(options_);
    TensorMap weights = Weights(*session, dir_);
    for (const TensorMap& batch : batches) {
      for (auto& [name, g] : session->Gradients(batch, false).gradients) {
        for (int64_t i = 0; i < g.size(); ++i) {
          weights.at(name).data<float>()[i] -=
              g.data<float>()[i] / static_cast<float>(batches.size());
        }
      }
    }
    return weights;
  }

  static void ExpectNear(const TensorMap& a, const TensorMap& b) {
    ASSERT_EQ(a.size(), 3u);
    for (const auto& [name, x] : a) {
      for (int64_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(x.data<float>()[i], b.at(name).data<float>()[i], 1e-6)
            << name << " " << i;
      }
    }
  }

  std::unique_ptr<TrainingSession> Create(int64_t grad_accum) {
    options_.grad_accum = grad_accum;
    return TrainingSession::Create(options_);
  }

  TempDir dir_;
  SessionOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Recipes, Shapes,
                         testing::Values("off", "tensorwise", "delayed"),
                         [](const auto& info) { return info.param; });

TEST_P(Shapes, OfMicroBatchesMayDiffer) {
  TensorMap big = Batch(1, 6), small = Batch(2, 3), smaller = Batch(3, 2);
  for (const Batches& batches :
       {Batches{big, small}, Batches{small, big}, Batches{small, smaller}}) {
    auto session = Create(2);
    session->Step(batches, 1);
    ExpectNear(Weights(*session, dir_), Expected(batches));
  }
}

// Independent of earlier plans and their shapes.
TEST_P(Shapes, MayDifferBetweenSteps) {
  TensorMap big = Batch(1, 6), small = Batch(2, 3);
  for (int64_t max_plans : {1, 8}) {
    options_.max_plans = max_plans;
    auto session = Create(2);
    auto first = Weights(*session, dir_);
    session->Step(Batches{small, small}, 0);
    session->Step(Batches{big, small}, 0);
    session->Step(Batches{small, Batch(4, 2)}, 1);
    TensorMap now = Weights(*session, dir_);
    ExpectSame({{"big.weight", now.at("big.weight")}},
               {{"big.weight", first.at("big.weight")}});
    session->Step(Batches{small, big}, 1);
    EXPECT_FALSE(
        Same({{"big.weight", first.at("big.weight")}},
             {{"big.weight", Weights(*session, dir_).at("big.weight")}}));
  }
}

TEST_P(Shapes, LabelWhatIsNotFinite) {
  TensorMap big = Batch(1, 6), small = Batch(2, 3);
  options_.loss.kind = "mse";
  for (TensorMap* batch : {&big, &small}) {
    (*batch)["labels"] = Random({(*batch)["x"].dim(0), kClasses}, 7);
  }
  TensorMap bad = small;
  bad["labels"] = small["labels"].Clone();
  bad["labels"].data<float>()[3] = std::numeric_limits<float>::infinity();
  for (const TensorMap& first : {big, small}) {
    auto session = Create(2);
    session->Step(Batches{first, big}, 1e-2);
    for (const Batches& batches : {Batches{big, bad}, Batches{bad, big}}) {
      TensorMap before = Weights(*session, dir_);
      StepResult step = session->Step(batches, 1e-2);
      EXPECT_TRUE(step.skipped);
      EXPECT_EQ(step.cause, GetParam() == std::string("off")
                                ? "the loss is not finite"
                                : "out.weight dgrad grad_output is not finite");
      ExpectSame(before, Weights(*session, dir_));
    }
    EXPECT_FALSE(session->Step(Batches{big, small}, 1e-2).skipped);
  }
}

// The plan of the first sum no longer exists when the second batch fails.
TEST_P(Shapes, AnErrorLeavesNoSumOfAPlanThatIsGone) {
  options_.max_plans = 1;
  auto disturbed = Create(2), other = Create(2);
  TensorMap big = Batch(1, 6), small = Batch(2, 3), bad = Batch(5, 3);
  bad["labels"].data<int64_t>()[1] = kClasses;
  for (auto* session : {&disturbed, &other})
    (*session)->Step(Batches{big, small}, 0);
  EXPECT_THROW(disturbed->Step(Batches{big, bad}, 1), Error);
  for (auto* session : {&disturbed, &other})
    (*session)->Step(Batches{big, small}, 1);
  ExpectSame(Weights(*disturbed, dir_), Weights(*other, dir_));
}

// Only the update of a big batch reads the moment that does not fit.
TEST_P(Shapes, AFailedUpdateLeavesNoSums) {
  options_.optimizer.momentum = 0.9;
  TensorMap big = Batch(1, 6), small = Batch(2, 3), smaller = Batch(3, 2);
  Create(2)->Save(dir_ / "run");
  auto checkpoint = *LoadLatestCheckpoint(dir_ / "run", kAnyModel);
  auto manifest = nlohmann::json::parse(
      ReadText(dir_ / "run/checkpoints/step_00000000/manifest.json"));
  checkpoint.model = manifest["model"].get<std::string>();
  checkpoint.state["big.weight.momentum_buffer"] =
      Tensor::Zeros(DType::kFloat, {1});
  SaveCheckpoint(dir_ / "odd", checkpoint);
  auto disturbed = Create(2), other = Create(2);
  for (auto* session : {&disturbed, &other}) {
    (*session)->Restore(dir_ / "odd");
    (*session)->Step(Batches{small, smaller}, 0);
  }
  ExpectError(
      [&] {
        disturbed->Step(Batches{big, small}, 1);
      },
      "big.weight.momentum_buffer");
  EXPECT_EQ(disturbed->step(), 1);
  for (auto* session : {&disturbed, &other})
    (*session)->Step(Batches{small, smaller}, 1);
  ExpectSame(Weights(*disturbed, dir_), Weights(*other, dir_));
}

// Graphs of small batches lack the parameter.
TEST_P(Shapes, PatternsMayMeanAParameterOfBigBatches) {
  options_.optimizer.groups = {{.pattern = "big.*", .lr_scale = 0.5}};
  options_.filter.exclude = {"big.weight"};
  TensorMap big = Batch(1, 6), small = Batch(2, 3);
  for (int64_t grad_accum : {1, 2}) {
    auto session = Create(grad_accum);
    session->Step(Batches(static_cast<size_t>(grad_accum), small), 0);
    TensorMap expected = Weights(*session, dir_);
    Tensor g = session->Gradients(big, false).gradients.at("big.weight");
    session->Step(Batches(static_cast<size_t>(grad_accum), big), 1);
    TensorMap got = Weights(*session, dir_);
    for (int64_t i = 0; i < g.size(); ++i) {
      EXPECT_NEAR(got.at("big.weight").data<float>()[i],
                  expected.at("big.weight").data<float>()[i] -
                      0.5f * g.data<float>()[i],
                  1e-6);
    }
  }
  options_.optimizer.groups[0].pattern = "bgi.*";
  ExpectError([&] { Create(1)->Step(Batches{small}, 1); }, "\"bgi.*\"");
}

// Steps of a large batch, and of its parts with 2, 0 and 5 labels that count.
class ByTokens : public testing::Test {
 protected:
  void SetUp() override {
    options_ = Options(WriteMlp(dir_, false));
    options_.optimizer.kind = "sgd";
    for (const auto& [size, ignored] :
         {std::pair{6, 4}, std::pair{2, 2}, std::pair{5, 0}}) {
      TensorMap part = Batch(static_cast<uint64_t>(size), size);
      for (int i = 0; i < ignored; ++i) {
        part.at("labels").data<int64_t>()[i] = -100;
      }
      parts_.push_back(part);
    }
    for (const char* name : {"x", "labels"}) {
      Shape shape = parts_[0].at(name).shape();
      shape[0] = 13;
      Tensor all = Tensor::Allocate(parts_[0].at(name).dtype(), shape);
      auto* to = static_cast<std::byte*>(all.raw());
      for (const TensorMap& part : parts_) {
        const Tensor& own = part.at(name);
        std::memcpy(to, own.raw(), own.bytes());
        to += own.bytes();
      }
      whole_[name] = all;
    }
  }

  std::unique_ptr<TrainingSession> Create(const std::string& by) {
    SessionOptions options = options_;
    options.grad_accum = 3;
    options.grad_accum_by = by;
    return TrainingSession::Create(options);
  }

  // The largest difference of the weights after a step of rate 1. The losses
  // and norms must agree as well.
  double Difference(double tolerance) {
    auto one = TrainingSession::Create(options_);
    auto three = Create("tokens");
    StepResult a = one->Step(whole_, 1), b = three->Step(parts_, 1);
    EXPECT_FALSE(b.skipped) << b.cause;
    EXPECT_NEAR(a.loss, b.loss, tolerance);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, tolerance);
    return Difference(Weights(*one, dir_), Weights(*three, dir_));
  }

  static double Difference(const TensorMap& a, const TensorMap& b) {
    double most = 0;
    for (const auto& [name, x] : a) {
      for (int64_t i = 0; i < x.size(); ++i) {
        most = std::max(most, std::abs(double{x.data<float>()[i]} -
                                       double{b.at(name).data<float>()[i]}));
      }
    }
    return most;
  }

  TempDir dir_;
  SessionOptions options_;
  Batches parts_;
  TensorMap whole_;
};

TEST_F(ByTokens, IsTheLargeBatch) {
  EXPECT_LT(Difference(1e-5), 1e-5);
  // The mean of the means is another step.
  auto one = TrainingSession::Create(options_);
  auto means = Create("batches");
  one->Step(whole_, 1);
  means->Step(parts_, 1);
  EXPECT_GT(Difference(Weights(*one, dir_), Weights(*means, dir_)), 1e-2);
}

TEST_F(ByTokens, ClassesMayHaveWeights) {
  options_.loss.class_weights = {1, 0.25f, 3, 0.5f};
  EXPECT_LT(Difference(1e-5), 1e-5);
}

TEST_F(ByTokens, LossesOfNumbersCountTheirElements) {
  options_.loss.kind = "mse";
  whole_["labels"] = Random({13, kClasses}, 5);
  const float* from = whole_["labels"].data<float>();
  for (TensorMap& part : parts_) {
    part["labels"] =
        Tensor::Allocate(DType::kFloat, {part["x"].dim(0), kClasses});
    std::memcpy(part["labels"].raw(), from, part["labels"].bytes());
    from += part["labels"].size();
  }
  EXPECT_LT(Difference(1e-5), 1e-5);
}

TEST_F(ByTokens, AScaleOfTheLossIsDividedOut) {
  options_.dtype = DType::kFloat16;
  options_.loss_scaling.init = 64;
  EXPECT_LT(Difference(1e-2), 1e-2);
}

TEST_F(ByTokens, AStepWithoutALabelIsSkipped) {
  auto session = Create("tokens");
  TensorMap before = Weights(*session, dir_);
  StepResult step = session->Step({parts_[1], parts_[1], parts_[1]}, 1);
  EXPECT_TRUE(step.skipped);
  EXPECT_EQ(step.cause, "no label of this batch counts");
  ExpectSame(before, Weights(*session, dir_));
  // The next one begins with no labels.
  EXPECT_FALSE(session->Step(parts_, 0).skipped);
}

TEST_F(ByTokens, SaysThatFloat16MayBeginWithSkippedSteps) {
  const auto says = [&](const std::string& by) {
    const auto notes = Create(by)->Notes();
    return std::ranges::any_of(notes, [](const std::string& note) {
      return note.find("loss scale, 65536 at first") != std::string::npos;
    });
  };
  EXPECT_FALSE(says("tokens"));
  options_.dtype = DType::kFloat16;
  EXPECT_TRUE(says("tokens"));
  EXPECT_FALSE(says("batches"));
}

TEST_F(ByTokens, NeedsALossThatCounts) {
  options_.grad_accum = 2;
  options_.grad_accum_by = "labels";
  ExpectError([&] { TrainingSession::Create(options_); },
              "`grad_accum_by`: expected batches or tokens, got labels");
  options_.grad_accum_by = "tokens";
  options_.recipe = ParseRecipe("static");
  ExpectError([&] { TrainingSession::Create(options_); },
              "`grad_accum_by=tokens`: expected no static scales, because they "
              "are made for gradients of means, got ");
  options_.recipe = ParseRecipe("off");
  auto graph = ReadModel(options_.model);
  options_.loss.kind = "output:" + graph->outputs[0]->name;
  ExpectError([&] { TrainingSession::Create(options_); },
              "`grad_accum_by=tokens`: expected a loss of the table, got "
              "output:");
}

// The first micro-batch has moved the statistics.
TEST(Micro, AnErrorLeavesRunningStatisticsAsTheyWere) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, true));
  options.grad_accum = 2;
  auto session = TrainingSession::Create(options);
  session->Step(Batches{Batch(1), Batch(2)}, 1e-2);
  TensorMap before = Weights(*session, dir), bad = Batch(3);
  bad["labels"].data<int64_t>()[3] = kClasses;
  EXPECT_THROW(session->Step(Batches{Batch(4), bad}, 1e-2), Error);
  ExpectSame(before, Weights(*session, dir));
}

// Batches of skipped steps do not count, however many these had.
TEST(Micro, RunningStatisticsCountTheBatchesOfGroups) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, true));
  options.grad_accum = 4;
  TensorMap bad = Batch(3);
  bad["x"].data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  auto session = TrainingSession::Create(options);
  EXPECT_TRUE(session->Step(Batches{bad}, 1e-2).skipped);
  EXPECT_FALSE(session->Step(Batches{Batch(1), Batch(2)}, 1e-2).skipped);
  const auto counted = [&](TrainingSession& of) {
    const std::string path = dir / "weights.safetensors";
    of.ExportSafetensors(path);
    return ReadSafetensors(path)
        .at("bn.num_batches_tracked")
        .data<int64_t>()[0];
  };
  EXPECT_EQ(counted(*session), 2);
  session->Save(dir / "run");
  auto restored = TrainingSession::Create(options);
  restored->Restore(dir / "run");
  EXPECT_EQ(counted(*restored), 2);
  auto set = TrainingSession::Create(options);
  set->SetState(session->State());
  EXPECT_EQ(counted(*set), 2);
  EXPECT_EQ(set->skipped_steps(), 1);
}

TEST(Micro, AnOlderCheckpointHadWholeGroups) {
  const auto [skipped, tracked] =
      StepCountsOf({{"session.skipped", "2"}}, 20, 4, "run");
  EXPECT_EQ(skipped, 2);
  EXPECT_EQ(tracked, 12);
}

// The first batches are small: no update reaches big.weight, whose average
// begins as the weight when one does.
TEST(Micro, AnAverageBeginsWithItsWeight) {
  TempDir dir;
  SessionOptions options = Options(WriteBranching(dir));
  options.optimizer.ema = 0.75;
  auto session = TrainingSession::Create(options);
  for (uint64_t step : {1, 2}) session->Step(Batch(step, 3), 1e-2);
  EXPECT_FALSE(session->State().tensors.contains("big.weight.ema"));
  const Tensor first = session->ReadWeights().at("big.weight").Clone();
  session->Step(Batch(3, 6), 1e-2);
  const Tensor w = session->ReadWeights().at("big.weight");
  const Tensor average = session->State().tensors.at("big.weight.ema");
  for (int64_t i = 0; i < w.size(); ++i) {
    const float begun = first.data<float>()[i];
    const float distance = w.data<float>()[i] - begun;
    ASSERT_EQ(average.data<float>()[i], begun + distance * 0.25f) << i;
  }
}

// A tensor of the model that has one of our names.
TEST(Micro, ATakenNameIsLeftAlone) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  auto graph = ReadModel(options.model);
  graph->Rename(graph->Find("out.weight"), "micro.grad.fc.weight");
  WriteModel(*graph, options.model);
  auto one = TrainingSession::Create(options);
  options.grad_accum = 2;
  auto two = TrainingSession::Create(options);
  for (uint64_t step = 0; step < 2; ++step) {
    one->Step(Batch(step), 1e-2);
    two->Step(Batches{Batch(step), Batch(step)}, 1e-2);
  }
  ExpectSame(Weights(*one, dir), Weights(*two, dir));
}

TEST(Micro, ACheckpointSaysWhereTheDataGoOn) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.grad_accum = 3;
  auto session = TrainingSession::Create(options);
  for (int i = 0; i < 2; ++i)
    session->Step(Batches{Batch(1), Batch(2), Batch(3)}, 0);
  session->Save(dir / "run");
  EXPECT_EQ(LoadLatestCheckpoint(dir / "run", kAnyModel)->next_batch, 6);
}

}  // namespace
}  // namespace onnx_fp8
