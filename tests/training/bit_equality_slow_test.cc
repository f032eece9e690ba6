// SPDX-License-Identifier: Apache-2.0
//
// Choices that save memory, or keep tensors of a step, and change no bit. Any
// two of them meet in a run, and each one meets every named recipe, both
// dtypes, runs that are resumed and runs that go on with other numbers of
// ranks.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "onnx_fp8/recipe.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/pairwise.h"
#include "tests/support/paths.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/needed_memory.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

// ---- cases

enum BitFactor : size_t {
  kRecipe,
  kDtype,
  kWay,
  kAgain,
  kFiles,
  kCodes,
  kRelease,
  kDump
};

// How the four steps of a run go. The last two ways divide state among ranks.
enum Way : size_t {
  kStraight,
  kResumed,
  kOnRanks,
  kPartsOfMoments,
  kPartsOfWeights
};
constexpr const char* kWayNames[] = {"straight", "resumed", "on_ranks",
                                     "optimizer_in_parts",
                                     "parameters_in_parts"};

// What the backward computes again. The last one is what `memory` asks for.
enum Again : size_t { kNothing, kBlocks, kModules, kWhatFits };
constexpr const char* kAgainNames[] = {"", "_blocks", "_modules", "_memory"};

// Choices that exclude each other, and how their error begins.
struct BitRefusal {
  LevelPair pair;
  const char* error;
};
constexpr BitRefusal kRefusals[] = {
    {{{kWay, kPartsOfWeights}, {kCodes, 1}},
     "`primary_weights=fp8`: expected `shard` none, optimizer or gradients"}};

std::vector<size_t> LevelsOfFactors() {
  return {RecipePresets().size(),
          2,
          std::size(kWayNames),
          std::size(kAgainNames),
          2,
          2,
          2,
          2};
}

std::vector<LevelPair> RefusedPairs() {
  std::vector<LevelPair> pairs;
  for (const BitRefusal& refusal : kRefusals) pairs.push_back(refusal.pair);
  return pairs;
}

struct BitCase {
  std::string recipe;
  DType dtype = DType::kFloat;
  Way way = kStraight;
  Again again = kNothing;
  bool in_files = false;     // `state_dir`
  bool keeps_codes = false;  // `primary_weights`
  bool releases = false;     // `release_gradients`
  bool dumps = false;        // `dump`, where one rank trains
};

BitCase CaseOf(const std::vector<size_t>& levels) {
  return {RecipePresets()[levels[kRecipe]].name,
          levels[kDtype] ? DType::kBFloat16 : DType::kFloat,
          static_cast<Way>(levels[kWay]),
          static_cast<Again>(levels[kAgain]),
          levels[kFiles] != 0,
          levels[kCodes] != 0,
          levels[kRelease] != 0,
          levels[kDump] != 0};
}

std::string NameOf(const BitCase& c) {
  return Concat(c.recipe, "_", Name(c.dtype), "_", kWayNames[c.way],
                kAgainNames[c.again], c.in_files ? "_files" : "",
                c.keeps_codes ? "_codes" : "", c.releases ? "_released" : "",
                c.dumps ? "_dumps" : "");
}

void PrintTo(const BitCase& c, std::ostream* out) { *out << NameOf(c); }

std::vector<BitCase> BitCases() {
  std::vector<BitCase> cases;
  for (const auto& one : PairwiseCases(LevelsOfFactors(), RefusedPairs())) {
    cases.push_back(CaseOf(one));
  }
  return cases;
}

TEST(BitEqualityCases, HaveAllPairsOfChoicesButTheRefusedOnes) {
  const std::vector<size_t> levels = LevelsOfFactors();
  const auto cases = PairwiseCases(levels, RefusedPairs());
  EXPECT_LE(cases.size(), 48u);
  size_t sum = 0, squares = 0;
  for (size_t count : levels) {
    sum += count;
    squares += count * count;
  }
  const std::vector<LevelPair> pairs = PairsOf(levels);
  EXPECT_EQ(pairs.size(), (sum * sum - squares) / 2);
  for (const LevelPair& pair : pairs) {
    const auto& [a, b] = pair;
    const bool is_in_a_case = std::ranges::any_of(cases, [&](const auto& one) {
      return one[a.factor] == a.level && one[b.factor] == b.level;
    });
    const bool is_refused = std::ranges::count(RefusedPairs(), pair) > 0;
    EXPECT_NE(is_in_a_case, is_refused)
        << "factor " << a.factor << " level " << a.level << ", factor "
        << b.factor << " level " << b.level;
  }
}

// ---- runs

// Samples for 4, 3 and 2 ranks.
constexpr int64_t kSamplesOfAStep = 24;
constexpr double kRateOfBits = 1e-3;

const std::vector<Batches>& StepsOfBits() {
  static const std::vector<Batches> steps = TokenSteps(1, kSamplesOfAStep);
  return steps;
}

SessionOptions GptWith(const std::string& recipe, DType dtype) {
  SessionOptions options =
      Options(SourcePath("samples/gpt_tiny/gpt_tiny.onnx"), recipe);
  options.dtype = dtype;
  return options;
}

// A run with delayed scaling: its scales serve as static ones.
struct ScalesOfARun {
  ScalesOfARun() {
    auto session = TrainingSession::Create(GptWith("delayed", DType::kFloat));
    session->Step(StepsOfBits()[0], kRateOfBits);
    session->Save(dir.path());
  }
  TempDir dir;
};

SessionOptions PlainOptions(const std::string& recipe, DType dtype) {
  static const ScalesOfARun scales;
  SessionOptions options = GptWith(recipe, dtype);
  if (recipe == "static") options.scales = scales.dir.path();
  return options;
}

// `files`: a folder for state.
SessionOptions OptionsOf(const BitCase& c, const std::string& files) {
  SessionOptions options = PlainOptions(c.recipe, c.dtype);
  if (c.way == kPartsOfMoments) options.shard.what = Sharding::kOptimizer;
  if (c.way == kPartsOfWeights) options.shard.what = Sharding::kParameters;
  if (c.again == kBlocks) options.recompute = {"blocks"};
  if (c.again == kModules) options.recompute = {"*_proj"};
  if (c.in_files) options.state_dir = files;
  if (c.keeps_codes) options.primary_weights = "fp8";
  options.optimizer.release_gradients = c.releases;
  // What is kept would need more memory than the search allows.
  if (c.dumps && c.again != kWhatFits) {
    options.dump = {"*"};
    options.at_steps = {"1", "3", "4"};
  }
  return options;
}

// Steps on one number of ranks.
struct Stage {
  int ranks;
  size_t first, last;
};

std::vector<Stage> StagesOf(Way way) {
  if (way == kStraight) return {{1, 0, 4}};
  if (way == kResumed) return {{1, 0, 2}, {1, 2, 4}};
  return {{4, 0, 1}, {2, 1, 2}, {1, 2, 3}, {3, 3, 4}};
}

struct BitRun {
  std::vector<float> losses, norms;
  TensorMap state;  // of the last checkpoint
  std::string remarks;
  size_t outside_bytes = 0;
};

// The stage goes on from the checkpoint in the folder, and leaves one there.
void RunStage(SessionOptions options, const Stage& stage,
              const std::string& folder, BitRun* run) {
  if (stage.ranks == 1) options.shard.what = Sharding::kNone;
  if (stage.ranks > 1) options.dump = options.at_steps = {};
  RunRanks(stage.ranks, [&](Communicator& world) {
    const MeshRanks ranks({.dp = stage.ranks}, world);
    auto session = MakeSession(options, MakeCpuProvider(),
                               stage.ranks > 1 ? &ranks : nullptr);
    if (stage.first > 0) session->Restore(folder);
    for (size_t i = stage.first; i < stage.last; ++i) {
      const StepResult result =
          session->Step(ShareOf(StepsOfBits()[i][0], world), kRateOfBits);
      EXPECT_FALSE(result.skipped) << result.cause;
      const std::string step = std::to_string(result.step);
      EXPECT_EQ(result.dumps.size(),
                std::ranges::count(options.at_steps, step) > 0 ? 1u : 0u);
      if (world.rank() > 0) continue;
      run->losses.push_back(result.loss);
      run->norms.push_back(result.grad_norm);
      run->remarks += result.remark;
    }
    if (world.rank() == 0) run->outside_bytes = session->Memory().outside_bytes;
    // Ranks that divide state save it together.
    const bool in_parts = options.shard.what != Sharding::kNone;
    if (in_parts || world.rank() == 0) session->Save(folder);
    world.Barrier();
  });
}

// `fits`: each stage has a memory between what its step needs if all that helps
// is computed again, and if nothing is.
BitRun RunWith(const SessionOptions& options, Way way, bool fits) {
  TempDir dir;
  BitRun run;
  for (const Stage& stage : StagesOf(way)) {
    SessionOptions own = options;
    if (fits) {
      const NeededMemory needed =
          MemoryNeeded(options, [&](const SessionOptions& refused) {
            BitRun none;
            RunStage(refused, stage, dir.path(), &none);
          });
      own.memory = std::to_string(needed.halfway());
    }
    RunStage(own, stage, dir.path(), &run);
  }
  run.state = StateIn(dir.path());
  return run;
}

// The run without any choice. All ranks keep all state.
const BitRun& PlainRun(const BitCase& c) {
  static std::map<std::string, BitRun> runs;
  BitCase plain = c;
  plain.way = c.way < kOnRanks ? kStraight : kOnRanks;
  plain.again = kNothing;
  plain.in_files = plain.keeps_codes = plain.releases = plain.dumps = false;
  const auto [known, is_new] = runs.try_emplace(NameOf(plain));
  if (is_new) {
    known->second = RunWith(OptionsOf(plain, ""), plain.way, false);
  }
  return known->second;
}

// ---- tests

class BitEquality : public testing::TestWithParam<BitCase> {};

INSTANTIATE_TEST_SUITE_P(Pairs, BitEquality, testing::ValuesIn(BitCases()),
                         [](const auto& info) { return NameOf(info.param); });

TEST_P(BitEquality, OfARunAndTheSameRunWithoutChoices) {
  const BitCase& c = GetParam();
  TempDir files;
  const BitRun& want = PlainRun(c);
  const BitRun got =
      RunWith(OptionsOf(c, files.path()), c.way, c.again == kWhatFits);
  EXPECT_EQ(got.losses, want.losses);
  // The norm of parts is a sum in another order. Nothing but the report has it.
  if (c.way <= kOnRanks) {
    EXPECT_EQ(got.norms, want.norms);
  }
  ExpectSame(got.state, want.state);
  const auto says = [&](const char* words) {
    return got.remarks.find(words) != std::string::npos;
  };
  EXPECT_EQ(says("`memory`: "), c.again == kWhatFits) << got.remarks;
  if (c.again != kWhatFits) {
    EXPECT_EQ(says("`recompute`: "), c.again != kNothing) << got.remarks;
  }
  EXPECT_EQ(says("`primary_weights` fp8: "), c.keeps_codes) << got.remarks;
  EXPECT_EQ(got.outside_bytes > 0, c.in_files);
}

TEST(BitEqualityCases, TheRefusedPairsAreErrors) {
  for (const BitRefusal& refusal : kRefusals) {
    const auto& [a, b] = refusal.pair;
    std::vector<size_t> levels(LevelsOfFactors().size());
    levels[a.factor] = a.level;
    levels[b.factor] = b.level;
    const std::string error = ErrorOf(
        [&] { TrainingSession::Create(OptionsOf(CaseOf(levels), "")); });
    EXPECT_TRUE(error.starts_with(refusal.error)) << error;
  }
}

}  // namespace
}  // namespace onnx_fp8
