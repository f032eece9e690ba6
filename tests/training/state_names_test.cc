// SPDX-License-Identifier: Apache-2.0
//
// Frozen tensors that are named as the state of an optimizer would be.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"
#include "training/state/masters.h"

namespace onnx_fp8 {
namespace {

constexpr char kFrozen[] = "frozen";

// x · w.weight · frozen · v.weight; all matrices have one shape.
std::string WriteModelWith(const TempDir& dir, const std::string& frozen) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  uint64_t seed = 1;
  for (const std::string& name :
       {std::string("w.weight"), frozen, std::string("v.weight")}) {
    Value* matrix = graph.AddInitializer(name, Random({kIn, kIn}, seed++));
    x = b.Op("Tanh", {b.Op("MatMul", {x, matrix})});
  }
  graph.outputs = {x};
  const std::string path = dir / "model.onnx";
  WriteModel(graph, path);
  return path;
}

SessionOptions OptionsWith(const std::string& model, const std::string& frozen,
                           int64_t micro_batches, Sharding what) {
  SessionOptions options = Options(model);
  options.freeze = {frozen};
  options.grad_accum = micro_batches;
  options.shard.what = what;
  return options;
}

Batches StepAt(uint64_t step, int64_t micro_batches) {
  Batches batches;
  for (int64_t i = 0; i < micro_batches; ++i) {
    batches.push_back(Batch(10 * step + static_cast<uint64_t>(i), 8));
  }
  return batches;
}

// Four steps, and a checkpoint behind the second one that is read again.
std::vector<float> Losses(const std::string& frozen, int64_t micro_batches,
                          Sharding what, const Mesh& mesh) {
  TempDir dir;
  const std::string model = WriteModelWith(dir, frozen);
  const SessionOptions options =
      OptionsWith(model, frozen, micro_batches, what);
  std::vector<float> losses;
  RunRanks(static_cast<int>(mesh.ranks()), [&](Communicator& world) {
    const MeshRanks ranks(mesh, world);
    for (uint64_t first : {0, 2}) {
      auto session = MakeSession(options, MakeCpuProvider(), &ranks);
      if (first > 0) session->Restore(dir / "run");
      for (uint64_t step = first; step < first + 2; ++step) {
        Batches mine;
        for (const TensorMap& batch : StepAt(step, micro_batches)) {
          mine.push_back(ShareOf(batch, ranks.data_rank(), mesh.data_ranks()));
        }
        const float loss = session->Step(mine, 1e-2).loss;
        if (world.rank() == 0) losses.push_back(loss);
      }
      const bool shares = what != Sharding::kNone || mesh.tp > 1;
      if (shares || world.rank() == 0) session->Save(dir / "run");
      world.Barrier();
    }
  });
  return losses;
}

TEST(StateNames, AFrozenTensorIsNoMoment) {
  for (int64_t micro_batches : {1, 2}) {
    const auto want = Losses(kFrozen, micro_batches, Sharding::kNone, {});
    for (const char* name : {"w.weight.base", "w.weight.exp_avg"}) {
      for (const auto& [mesh, what] :
           {std::pair{Mesh{}, Sharding::kNone},
            {Mesh{.dp = 2}, Sharding::kNone},
            {Mesh{.dp = 2}, Sharding::kOptimizer},
            {Mesh{.dp = 2}, Sharding::kParameters},
            {Mesh{.tp = 2}, Sharding::kNone},
            {Mesh{.dp = 2, .tp = 2}, Sharding::kParameters}}) {
        SCOPED_TRACE(Concat(name, " ", ToString(mesh), " ",
                            static_cast<int>(what),
                            ", micro-batches: ", micro_batches));
        const auto got = Losses(name, micro_batches, what, mesh);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << "step " << i;
        }
      }
    }
  }
}

// Scales of a checkpoint are found by their name.
TEST(StateNames, ATensorWithTheNameOfScales) {
  TempDir dir;
  const std::string model = WriteModelWith(dir, "fp8.scale");
  SessionOptions options = OptionsWith(model, "fp8.scale", 1, Sharding::kNone);
  EXPECT_TRUE(std::isfinite(TrainSteps(options, {StepAt(0, 1)}).steps[0].loss));
  options.recipe = ParseRecipe("delayed");
  ExpectError([&] { TrainSteps(options, {StepAt(0, 1)}); },
              "expected no value named fp8.scale, the name of the scales of a "
              "run: rename it in the model");
}

// The correction of w.weight gets a number then.
TEST(StateNames, ATensorWithTheNameOfACorrection) {
  TempDir dir;
  const std::string name = "w.weight.correction";
  const std::string model = WriteModelWith(dir, name);
  SessionOptions options = OptionsWith(model, name, 1, Sharding::kNone);
  options.freeze.push_back("v.weight");
  options.optimizer.master = "split8";
  auto split = TrainingSession::Create(options);
  split->Step(StepAt(0, 1), 1e-2);
  split->Save(dir / "run");
  TensorMap state = split->State().tensors;
  const TensorMap weights = split->ReadWeights();
  JoinCorrections(&state);
  for (const std::string& own : {std::string("w.weight"), name}) {
    EXPECT_TRUE(Identical(state.at(own), weights.at(own))) << own;
  }
  EXPECT_FALSE(state.contains(name + "_1"));
  options.optimizer.master = "bfloat16";
  ExpectError([&] { TrainingSession::Create(options)->Restore(dir / "run"); },
              "w.weight.correction_1 as none, got int8[");
}

}  // namespace
}  // namespace onnx_fp8
