// SPDX-License-Identifier: Apache-2.0
//
// What a session adds to a single plan: skipped steps, random draws,
// checkpoints. accumulation_test.cc has micro-batches; corpus_test.cc compares
// the numbers with PyTorch.
#include "onnx_fp8/session.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/safetensors.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "tests/providers/cpu/isas.h"
#include "tests/training/files.h"
#include "tests/training/small_model.h"
#include "training/make_provider.h"
#include "training/step/static_scales.h"

namespace onnx_fp8 {
namespace {

TEST(Session, ASkippedStepChangesNothing) {
  TempDir dir;
  std::string model = WriteMlp(dir, true);
  TensorMap bad = Batch(3);
  bad["x"].data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  for (const char* recipe : {"off", "tensorwise", "delayed"}) {
    auto session = TrainingSession::Create(Options(model, recipe));
    session->Step(Batch(1), 1e-2);
    TensorMap before = Weights(*session, dir);
    StepResult result = session->Step(bad, 1e-2);
    EXPECT_TRUE(result.skipped);
    EXPECT_NE(result.cause, "");
    ExpectSame(before, Weights(*session, dir));
    EXPECT_FALSE(session->Step(Batch(2), 1e-2).skipped);
    EXPECT_EQ(session->skipped_steps(), 1);
  }
}

TEST(Session, ABatchWithoutLabelsHasNoLoss) {
  TempDir dir;
  auto session = TrainingSession::Create(Options(WriteMlp(dir, false)));
  TensorMap batch = Batch(1);
  for (int64_t i = 0; i < batch["labels"].size(); ++i) {
    batch["labels"].data<int64_t>()[i] = -100;
  }
  EXPECT_EQ(session->Eval(batch).cause, "no label of this batch counts");
  EXPECT_EQ(session->Gradients(batch, false).cause,
            "no label of this batch counts");
  batch["labels"].data<int64_t>()[0] = 1;
  batch["x"].data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(session->Eval(batch).cause, "the loss is not finite");
}

// A wrong pattern is found with the model, not in the first step.
TEST(Session, PatternsFitTheModel) {
  TempDir dir;
  std::string model = WriteMlp(dir, true);
  auto message = [&](auto change) -> std::string {
    SessionOptions options = Options(model, "tensorwise");
    change(options);
    try {
      TrainingSession::Create(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_EQ(message([](auto& o) { o.filter.exclude = {"fc"}; }), "");
  EXPECT_EQ(
      message([](auto& o) { o.filter.exclude = {"fd*"}; }),
      "[" + model +
          "] `exclude` fd* matches no matrix product; `inspect()` lists them");
  EXPECT_EQ(message([](auto& o) { o.optimizer.groups = {{"fd*"}}; }),
            "[" + model +
                "] expected trained parameters that match \"fd*\", got none; "
                "`inspect()` lists them");
}

TEST(Session, RunningStatisticsFollowTheBatches) {
  TempDir dir;
  auto session = TrainingSession::Create(Options(WriteMlp(dir, true)));
  TensorMap before = Weights(*session, dir);
  session->Step(Batch(1), 0);
  TensorMap after = Weights(*session, dir);
  for (const char* name : {"bn.running_mean", "bn.running_var"}) {
    EXPECT_FALSE(Same({{name, before.at(name)}}, {{name, after.at(name)}}))
        << name;
  }
}

TEST(Session, EvaluationIsInInferenceMode) {
  TempDir dir;
  auto session = TrainingSession::Create(Options(WriteMlp(dir, true)));
  TensorMap whole = Batch(1, 6);
  float all = session->Eval(whole).loss;
  EXPECT_EQ(session->Eval(whole).loss, all);
  // Samples do not affect each other, and none is dropped.
  double sum = 0;
  for (int64_t i = 0; i < 6; ++i) {
    TensorMap one = Batch(1, 1);
    std::copy_n(whole["x"].data<float>() + i * kIn, kIn,
                one["x"].data<float>());
    one["labels"].data<int64_t>()[0] = whole["labels"].data<int64_t>()[i];
    sum += session->Eval(one).loss;
  }
  EXPECT_NEAR(sum / 6, all, 1e-5);
}

// `grad` is compared with frameworks, which draw other masks.
TEST(Session, GradientsAreThoseWithoutDropout) {
  TempDir half, none;
  auto a = TrainingSession::Create(Options(WriteMlp(half, true, 0.5f)));
  auto b = TrainingSession::Create(Options(WriteMlp(none, true, 0.0f)));
  GradientResult x = a->Gradients(Batch(1), false);
  GradientResult y = b->Gradients(Batch(1), false);
  EXPECT_EQ(x.loss, y.loss);
  ExpectSame(x.gradients, y.gradients);
}

// The model ends in a Dropout: a user of the output asks for its name.
TEST(Session, AnOutputMayBeThatOfDropout) {
  TempDir dir;
  std::string model = WriteMlp(dir, false);
  float without = TrainingSession::Create(Options(model))->Eval(Batch(1)).loss;
  for (float ratio : {0.0f, 0.5f}) {
    auto graph = ReadModel(model);
    Builder b(*graph);
    graph->outputs = {
        b.Op("Dropout", {graph->outputs[0], b.Constant(Tensor::Scalar(ratio)),
                         b.Constant(Tensor::Scalar(true))})};
    std::string name = graph->outputs[0]->name;
    WriteModel(*graph, dir / "ends.onnx");
    SessionOptions options = Options(dir / "ends.onnx");
    options.loss.logits = name;
    auto session = TrainingSession::Create(options);
    EvalResult eval = session->Eval(Batch(1));
    EXPECT_EQ(eval.loss, without);
    EXPECT_TRUE(eval.outputs.contains(name));
    GradientResult gradients = session->Gradients(Batch(1), false);
    EXPECT_EQ(gradients.loss, without);
    EXPECT_TRUE(gradients.outputs.contains(name));
    EXPECT_TRUE(std::isfinite(session->Step(Batch(1), 1e-2).loss));
  }
}

TEST(Session, RunsOnAProviderOfThisMachine) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  for (const std::string& name : ProviderNames()) {
    options.provider = name;
    std::unique_ptr<TrainingSession> session;
    try {
      session = TrainingSession::Create(options);
    } catch (const Error& error) {
      const char* missing = HasProvider(name) ? "an NVIDIA GPU and its driver"
                                              : "libonnx_fp8_cuda.so in ";
      EXPECT_EQ(std::string(error.what())
                    .find(Concat("[provider cuda] expected ", missing)),
                0u)
          << error.what();
      continue;
    }
    EXPECT_GT(session->Step(Batch(1), 1e-2).loss, 0);
  }
  options.provider = "abacus";
  options.model = "no such file";  // it is not read for this
  ExpectError([&] { TrainingSession::Create(options); },
              "[provider abacus] expected one of cpu, cuda");
}

TEST(Session, StrictRunsTheSameKernels) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, true));
  auto session = TrainingSession::Create(options);
  options.strict = true;
  auto strict = TrainingSession::Create(options);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(session->Step(Batch(i), 1e-2).loss,
              strict->Step(Batch(i), 1e-2).loss);
  }
}

// Each plan may use up all of them.
TEST(Session, PlansHaveBudgets) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.budgets.nodes = 2;
  auto session = TrainingSession::Create(options);
  ExpectError([&] { session->Step(Batch(1), 1e-2); },
              "`budget` nodes=N raises the budget \"nodes\"");
  options.budgets.nodes = 10;
  session = TrainingSession::Create(options);
  for (int64_t samples : {4, 5, 6}) {
    session->Step(Batch(1, samples), 1e-2);
    session->Eval(Batch(1, samples));
    session->Gradients(Batch(1, samples), false);
  }
  options.expand = {"AdamW"};
  ExpectError([&] { TrainingSession::Create(options)->Step(Batch(1), 1e-2); },
              "`budget` nodes=N raises the budget \"nodes\"");
}

// Delayed scales follow the largest amax of all micro-batches, at any position.
TEST(Session, TheOrderOfMicroBatchesDoesNotMatter) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "delayed");
  options.grad_accum = 2;
  auto a = TrainingSession::Create(options);
  auto b = TrainingSession::Create(options);
  TensorMap large = Batch(1), small = Batch(2);
  large["x"].data<float>()[3] = 20;
  a->Step(Batches{large, small}, 1e-2);
  b->Step(Batches{small, large}, 1e-2);
  EXPECT_EQ(a->Eval(Batch(3)).loss, b->Eval(Batch(3)).loss);
}

TEST(Session, ARestoredRunEvaluatesByItsScales) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "delayed");
  auto a = TrainingSession::Create(options);
  TensorMap large = Batch(1);
  large["x"].data<float>()[3] = 20;
  a->Step(large, 1e-2);
  a->Save(dir / "run");
  auto b = TrainingSession::Create(options);
  b->Restore(dir / "run");
  EXPECT_EQ(a->Eval(Batch(2)).loss, b->Eval(Batch(2)).loss);
}

// Its scales are the checkpoint's until a step has new ones.
TEST(Session, ARefusedBatchKeepsRestoredScales) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "delayed");
  auto a = TrainingSession::Create(options);
  a->Step(Batch(1), 1e-2);
  a->Save(dir / "run");
  options.memory = "1";
  auto b = TrainingSession::Create(options);
  b->Restore(dir / "run");
  EXPECT_THROW(b->Step(Batch(1), 1e-2), Error);
  EXPECT_FALSE(a->Scales().empty());
  EXPECT_EQ(a->Scales().size(), b->Scales().size());
}

// Delayed scaling without a history is dynamic.
TEST(Session, AnotherRecipeForgetsTheScales) {
  TempDir dir;
  std::string model = WriteMlp(dir, false);
  auto delayed = TrainingSession::Create(Options(model, "delayed"));
  TensorMap large = Batch(1);
  large["x"].data<float>()[3] = 20;
  delayed->Step(large, 1e-2);
  delayed->Save(dir / "run");
  auto dynamic = TrainingSession::Create(Options(model, "tensorwise"));
  dynamic->Restore(dir / "run");
  EXPECT_NE(delayed->Eval(Batch(2)).loss, dynamic->Eval(Batch(2)).loss);
  dynamic->Save(dir / "run");
  auto again = TrainingSession::Create(Options(model, "delayed"));
  again->Restore(dir / "run");
  EXPECT_EQ(again->Step(Batch(2), 1e-2).loss,
            dynamic->Step(Batch(2), 1e-2).loss);
}

std::map<std::string, float> ScalesOf(const TrainingSession& session) {
  std::map<std::string, float> scales;
  for (const ScaleInfo& s : session.Scales()) scales[s.key] = s.scale;
  return scales;
}

// Under another filter and history length scales go on by key, and a note says
// so.
TEST(Session, ACheckpointOfAnotherFilterAndHistoryGoesOn) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "delayed");
  auto a = TrainingSession::Create(options);
  TensorMap large = Batch(1);
  large["x"].data<float>()[3] = 20;
  a->Step(large, 0);
  auto before = ScalesOf(*a);
  a->Save(dir / "run");
  options.recipe.amax_history = 4;
  options.filter.filter_fqns = {"out"};
  auto b = TrainingSession::Create(options);
  b->Restore(dir / "run");
  EXPECT_EQ(b->Step(Batch(2), 0).remark,
            "delayed scales: 3 go on, 0 start anew, 3 are dropped; their "
            "history is 4 steps, was 16");
  EXPECT_EQ(b->Step(Batch(2), 0).remark, "");
  // The large amax is still in the history.
  auto after = ScalesOf(*b);
  ASSERT_EQ(after.size(), 3u);
  const char* input = "fc.weight/forward/input/float8e4m3fn#0";
  EXPECT_EQ(after.at(input), before.at(input));
  EXPECT_FLOAT_EQ(after.at(input), 20.0f / 448);
}

// Whatever a step plans, Prepare has planned, and said.
TEST(Session, PreparePlansWhatAStepNeeds) {
  TempDir dir;
  for (int64_t grad_accum : {1, 2}) {
    SessionOptions options = Options(WriteMlp(dir, true), "delayed");
    options.grad_accum = grad_accum;
    auto a = TrainingSession::Create(options);
    Batches batches;
    for (int64_t i = 0; i < grad_accum; ++i) batches.push_back(Batch(1, 6 + i));
    a->Step(batches, 0);
    a->Save(dir / "run");
    int plans = 0;
    options.before_plan = [&] { ++plans; };
    options.filter.filter_fqns = {"out"};
    auto b = TrainingSession::Create(options);
    b->Restore(dir / "run");
    EXPECT_EQ(b->Prepare(batches),
              "delayed scales: 3 go on, 0 start anew, 3 are dropped");
    EXPECT_EQ(b->step(), 1);
    EXPECT_EQ(b->Prepare(batches), "");
    int planned = plans;
    EXPECT_GT(planned, 0);
    EXPECT_EQ(b->Memory().arena_bytes, 0u);
    EXPECT_EQ(b->Step(batches, 0).remark, "");
    EXPECT_GT(b->Memory().arena_bytes, 0u);
    EXPECT_EQ(plans, planned);
    EXPECT_THROW(b->Prepare(Batches(3, Batch(1))), Error);
  }
}

TEST(Session, ScalesMayMoveWithEachMicroBatch) {
  TempDir dir;
  SessionOptions options =
      Options(WriteMlp(dir, false), "delayed,algo:most_recent,update:micro");
  auto single = TrainingSession::Create(options);
  single->Step(Batch(1), 0);
  single->Step(Batch(2), 0);
  options.grad_accum = 2;
  auto micro = TrainingSession::Create(options);
  micro->Step(Batches{Batch(1), Batch(2)}, 0);
  EXPECT_EQ(ScalesOf(*micro), ScalesOf(*single));
  options.recipe.per_micro_batch = false;
  auto whole = TrainingSession::Create(options);
  whole->Step(Batches{Batch(1), Batch(2)}, 0);
  EXPECT_NE(ScalesOf(*whole), ScalesOf(*single));
}

// A session with delayed scaling after a step, saved in dir / "run". Afterwards
// `options` describe a session with static scaling, without scales.
std::unique_ptr<TrainingSession> DelayedRun(const TempDir& dir,
                                            SessionOptions* options) {
  *options = Options(WriteMlp(dir, false), "delayed");
  auto delayed = TrainingSession::Create(*options);
  delayed->Step(Batch(1), 1e-2);
  delayed->Save(dir / "run");
  options->recipe = ParseRecipe("static");
  return delayed;
}

// Scales are read, and checked, without the weights of their checkpoint.
TEST(Session, StaticScalesNeedNoWeightsOfTheirRun) {
  TempDir dir;
  SessionOptions options;
  auto delayed = DelayedRun(dir, &options);
  const std::string path =
      dir / "run/checkpoints/step_00000001/state.safetensors";
  TensorMap state;
  for (const auto& [name, tensor] : ReadSafetensors(path)) {
    state[name] = tensor.Clone();
  }
  const auto edit = [&](const std::string& name) {
    state.at(name).data<float>()[0] += 1;
    WriteSafetensors(path, Sources(state));
  };
  edit("fc.weight");
  EXPECT_THROW(delayed->Restore(dir / "run"), Error);
  EXPECT_EQ(ReadStaticScales(dir / "run").by_key, ScalesOf(*delayed));
  edit(kScaleState);
  EXPECT_THROW(ReadStaticScales(dir / "run"), Error);
}

TEST(Session, StaticScalesAreThoseOfADelayedRun) {
  TempDir dir;
  SessionOptions options;
  auto delayed = DelayedRun(dir, &options);
  auto without = TrainingSession::Create(options);
  EXPECT_THROW(without->Step(Batch(1), 0), Error);
  options.scales = dir / "run";
  auto fixed = TrainingSession::Create(options);
  float first = fixed->Step(Batch(2), 0).loss;
  fixed->Step(Batch(3), 0);
  EXPECT_EQ(ScalesOf(*fixed), ScalesOf(*delayed));
  EXPECT_EQ(fixed->Step(Batch(2), 0).loss, first);
  fixed->Save(dir / "fixed");
  auto again = TrainingSession::Create(options);
  again->Restore(dir / "fixed");
  EXPECT_EQ(again->Eval(Batch(2)).loss, fixed->Eval(Batch(2)).loss);
  EXPECT_EQ(again->Step(Batch(2), 0).remark, "");
}

TEST(Session, ACheckpointServesStaticScalesWithoutAFile) {
  TempDir dir;
  SessionOptions options;
  auto delayed = DelayedRun(dir, &options);
  auto fixed = TrainingSession::Create(options);
  fixed->Restore(dir / "run");
  fixed->Step(Batch(2), 1e-2);
  EXPECT_EQ(ScalesOf(*fixed), ScalesOf(*delayed));
  fixed->Save(dir / "fixed");
  auto again = TrainingSession::Create(options);
  again->Restore(dir / "fixed");
  EXPECT_EQ(again->Step(Batch(3), 1e-2).loss, fixed->Step(Batch(3), 1e-2).loss);
  EXPECT_EQ(ScalesOf(*again), ScalesOf(*delayed));
  // A file takes precedence.
  StaticScales other = ReadStaticScales(dir / "run");
  for (auto& [key, scale] : other.by_key) scale *= 2;
  options.scales = dir / "other.json";
  WriteStaticScales(options.scales, other);
  auto doubled = TrainingSession::Create(options);
  doubled->Restore(dir / "fixed");
  doubled->Step(Batch(3), 0);
  EXPECT_EQ(ScalesOf(*doubled), other.by_key);
  // A run without scales can't give any.
  options.scales.clear();
  options.recipe = ParseRecipe("off");
  auto off = TrainingSession::Create(options);
  off->Step(Batch(1), 0);
  off->Save(dir / "off");
  options.recipe = ParseRecipe("static");
  auto without = TrainingSession::Create(options);
  without->Restore(dir / "off");
  EXPECT_THROW(without->Step(Batch(1), 0), Error);
}

// A value that is not finite is found, and named, before it becomes a scale.
TEST(Session, AStaticScaleDoesNotHideWhatIsNotFinite) {
  TempDir dir;
  SessionOptions options;
  auto delayed = DelayedRun(dir, &options);
  options.scales = dir / "run";
  auto fixed = TrainingSession::Create(options);
  TensorMap bad = Batch(2);
  bad["x"].data<float>()[3] = std::numeric_limits<float>::infinity();
  StepResult step = fixed->Step(bad, 1e-2);
  EXPECT_TRUE(step.skipped);
  EXPECT_EQ(step.cause, "fc.weight forward input is not finite");
  EXPECT_EQ(ScalesOf(*fixed), ScalesOf(*delayed));
}

// The recipe, and the number of micro-batches in a step.
class NonFinite
    : public testing::TestWithParam<std::tuple<const char*, int64_t>> {
 protected:
  const std::string recipe_ = std::get<0>(GetParam());
  const int64_t accumulation_ = std::get<1>(GetParam());
  const bool off_ = recipe_ == "off";
  // A micro-batch moves scales before a later one is found to be bad.
  const bool early_ = recipe_ == "delayed,update:micro" && accumulation_ > 1;
  TempDir dir_;
  SessionOptions options_ = Options(WriteMlp(dir_, false), recipe_);

  void SetUp() override {
    options_.grad_accum = accumulation_;
    if (recipe_ != "static") return;
    SessionOptions delayed = Options(options_.model, "delayed");
    delayed.loss = options_.loss;
    auto session = TrainingSession::Create(delayed);
    session->Step(Batch(1), 0);
    session->Save(dir_ / "delayed");
    options_.scales = dir_ / "delayed";
  }

  Batches Good(uint64_t seed) const {
    Batches batches;
    for (int64_t i = 0; i < accumulation_; ++i) {
      batches.push_back(Batch(seed + 100 * static_cast<uint64_t>(i)));
    }
    return batches;
  }

  // The same batches, except one element of one of them.
  Batches Bad(uint64_t seed, size_t which, float value) const {
    Batches batches = Good(seed);
    batches[which]["x"].data<float>()[11] = value;
    return batches;
  }

  void ExpectUsable(const std::map<std::string, float>& scales) const {
    for (const auto& [key, scale] : scales) {
      EXPECT_TRUE(std::isfinite(scale) && scale >= 0) << key << " " << scale;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    Recipes, NonFinite,
    testing::Combine(testing::Values("off", "tensorwise", "rowwise",
                                     "rowwise_with_gw_hp", "delayed",
                                     "delayed,update:micro", "static",
                                     "blockwise", "mxfp8", "mxfp8,round:floor",
                                     "rowwise,tr:requantize"),
                     testing::Values(1, 2)),
    [](const auto& info) {
      std::string name =
          Concat(std::get<0>(info.param), std::get<1>(info.param));
      std::ranges::replace_if(
          name, [](char c) { return c == ',' || c == ':'; }, '_');
      return name;
    });

TEST_P(NonFinite, AnInputIsNamedAndLeavesNoTrace) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  size_t last = static_cast<size_t>(accumulation_) - 1;
  auto disturbed = TrainingSession::Create(options_);
  auto other = TrainingSession::Create(options_);
  uint64_t seed = 0;
  int64_t skipped = 0;
  for (float value : {kInf, -kInf, kNaN}) {
    for (size_t which = 0; which <= last; ++which) {
      auto scales = ScalesOf(*disturbed);
      TensorMap weights = Weights(*disturbed, dir_);
      StepResult step = disturbed->Step(Bad(50 + seed, which, value), 1e-2);
      EXPECT_TRUE(step.skipped);
      EXPECT_EQ(step.cause, off_ ? "the loss is not finite"
                                 : "fc.weight forward input is not finite");
      EXPECT_EQ(disturbed->skipped_steps(), ++skipped);
      ExpectSame(weights, Weights(*disturbed, dir_));
      ExpectUsable(ScalesOf(*disturbed));
      if (!early_ && !scales.empty()) {
        EXPECT_EQ(ScalesOf(*disturbed), scales);
      }

      StepResult good = disturbed->Step(Good(seed), 1e-2);
      EXPECT_FALSE(good.skipped) << good.cause;
      if (!early_) {
        EXPECT_EQ(good.loss, other->Step(Good(seed), 1e-2).loss);
      }
      ++seed;
    }
  }
  if (!early_) ExpectSame(Weights(*disturbed, dir_), Weights(*other, dir_));
}

// The label is no input of a product, but its gradient is.
TEST_P(NonFinite, AGradientIsNamed) {
  options_.loss.kind = "mse";
  auto session = TrainingSession::Create(options_);
  auto batches = [&](float value) {
    Batches made = Good(1);
    for (TensorMap& batch : made) batch["labels"] = Random({6, kClasses}, 7);
    made.back()["labels"].data<float>()[3] = value;
    return made;
  };
  session->Step(batches(0), 1e-2);
  TensorMap weights = Weights(*session, dir_);
  auto scales = ScalesOf(*session);
  for (float value : {std::numeric_limits<float>::infinity(),
                      std::numeric_limits<float>::quiet_NaN()}) {
    StepResult step = session->Step(batches(value), 1e-2);
    EXPECT_TRUE(step.skipped);
    EXPECT_EQ(step.cause, off_ ? "the loss is not finite"
                               : "out.weight dgrad grad_output is not finite");
    ExpectSame(weights, Weights(*session, dir_));
    if (!early_) {
      EXPECT_EQ(ScalesOf(*session), scales);
    }
    ExpectUsable(ScalesOf(*session));
  }
  EXPECT_FALSE(session->Step(batches(0), 1e-2).skipped);
}

TEST_P(NonFinite, AWeightIsNamed) {
  auto graph = ReadModel(options_.model);
  graph->Find("out.weight")->data.data<float>()[5] =
      std::numeric_limits<float>::quiet_NaN();
  WriteModel(*graph, options_.model);
  auto session = TrainingSession::Create(options_);
  StepResult step = session->Step(Good(1), 1e-2);
  EXPECT_TRUE(step.skipped);
  EXPECT_EQ(step.cause, off_ ? "the loss is not finite"
                             : "out.weight forward weight is not finite");
  ExpectUsable(ScalesOf(*session));
}

// The file has another name for the parameter; `inspect` lists PyTorch's name.
TEST(Session, GroupsGoByPyTorchsNamesToo) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  auto graph = ReadModel(options.model);
  graph->Rename(graph->Find("fc.weight"), "val_7");
  graph->Find("val_7")->uses[0]->name = "/fc/MatMul";
  WriteModel(*graph, options.model);
  options.optimizer.groups = {{.pattern = "fc.weight", .lr_scale = 0}};
  options.optimizer.weight_decay = 0;
  for (int64_t grad_accum : {1, 2}) {
    options.grad_accum = grad_accum;
    auto session = TrainingSession::Create(options);
    session->ExportSafetensors(dir / "before");
    session->Step(Batches(static_cast<size_t>(grad_accum), Batch(1)), 1);
    session->ExportSafetensors(dir / "after");
    TensorMap before = ReadSafetensors(dir / "before");
    TensorMap after = ReadSafetensors(dir / "after");
    EXPECT_TRUE(Identical(before.at("fc.weight"), after.at("fc.weight")));
    EXPECT_FALSE(Identical(before.at("out.weight"), after.at("out.weight")));
  }
}

// With a learning rate of 0 and one batch, only the draws differ.
TEST(Session, DropoutDrawsAnewEachStep) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, true));
  auto a = TrainingSession::Create(options);
  auto b = TrainingSession::Create(options);
  std::vector<float> losses;
  for (int i = 0; i < 6; ++i) {
    losses.push_back(a->Step(Batch(1), 0).loss);
    if (i < 3) {
      EXPECT_EQ(b->Step(Batch(1), 0).loss, losses.back());
    }
  }
  for (size_t i = 1; i < losses.size(); ++i) {
    EXPECT_NE(losses[i], losses[i - 1]);
  }
  b->Save(dir / "run");
  auto c = TrainingSession::Create(options);
  c->Restore(dir / "run");
  for (size_t i = 3; i < losses.size(); ++i) {
    EXPECT_EQ(c->Step(Batch(1), 0).loss, losses[i]);
  }
  options.seed = 1;
  auto other = TrainingSession::Create(options);
  EXPECT_NE(other->Step(Batch(1), 0).loss, losses[0]);
  options.seed = 0;
  options.grad_accum = 2;
  auto micro = TrainingSession::Create(options);
  float both = micro->Step(Batches{Batch(1), Batch(1)}, 0).loss;
  EXPECT_NE(both, losses[0]);
}

TEST(Session, SaysWhereSixteenBitsAreFaster) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  for (Isa isa : RunnableIsas()) {
    WithIsa with(isa);
    for (DType dtype : {DType::kFloat, DType::kBFloat16}) {
      options.dtype = dtype;
      bool said = false;
      for (const std::string& note :
           TrainingSession::Create(options)->Notes()) {
        said |= note.find("bfloat16 faster") != std::string::npos;
      }
      EXPECT_EQ(said, isa >= Isa::kAvx512Bf16 && dtype == DType::kFloat)
          << Name(isa);
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
