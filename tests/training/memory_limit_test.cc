// SPDX-License-Identifier: Apache-2.0
//
// Sessions on a device that has no more memory than `memory` says: what is
// accepted never runs out of it, and what is refused takes none.
#include <memory>
#include <string>

#include "base/check.h"
#include "tests/providers/device_provider.h"
#include "tests/providers/limited_provider.h"
#include "tests/support/paths.h"
#include "tests/training/needed_memory.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"
#include "training/step/step_limit.h"

namespace onnx_fp8 {
namespace {

struct LimitCase {
  const char* recipe;
  DType dtype = DType::kFloat;
  bool release = false;
  int64_t micro = 1;
  // Bytes for which there is the reserve: cells of amaxes, and the inputs and
  // reports of earlier micro-batches, which this device holds until it waits.
  size_t beside = 0;
};

constexpr int64_t kSamples = 32;
constexpr size_t kBytesOfInputs = 2 * kSamples * 12 * sizeof(int64_t);

SessionOptions OptionsOf(const LimitCase& c) {
  SessionOptions options =
      Options(SourcePath("samples/gpt_tiny/gpt_tiny.onnx"), c.recipe);
  options.dtype = c.dtype;
  options.optimizer.release_gradients = c.release;
  options.grad_accum = c.micro;
  return options;
}

// What a step of these options needs, without the reserve. With one byte it is
// refused before it takes any memory.
NeededMemory BytesOfSteps(const LimitCase& c, const Batches& batches) {
  NeededMemory needed =
      MemoryNeeded(OptionsOf(c), [&](const SessionOptions& refused) {
        const auto account = std::make_shared<MemoryAccount>();
        auto session = MakeSession(
            refused, MakeLimitedProvider(MakeDeviceProvider(), account));
        const size_t held = account->most_used;
        const std::string error =
            ErrorOf([&] { session->Step(batches, 1e-3); });
        EXPECT_EQ(account->most_used, held);
        EXPECT_EQ(session->step(), 0);
        Check(error.empty(), error);
      });
  needed.least -= kDeviceReserve;
  needed.most -= kDeviceReserve;
  return needed;
}

// A session for which the plan may take these bytes, and a device that has
// them.
struct LimitedSession {
  LimitedSession(const LimitCase& c, size_t bytes) {
    account->limit = bytes + c.beside;
    SessionOptions options = OptionsOf(c);
    options.memory = std::to_string(bytes + kDeviceReserve);
    session = MakeSession(options,
                          MakeLimitedProvider(MakeDeviceProvider(), account));
  }

  std::shared_ptr<MemoryAccount> account = std::make_shared<MemoryAccount>();
  std::unique_ptr<TrainingSession> session;
};

class LimitedMemory : public testing::TestWithParam<LimitCase> {};

INSTANTIATE_TEST_SUITE_P(
    All, LimitedMemory,
    testing::Values(
        LimitCase{.recipe = "off"},
        LimitCase{.recipe = "off", .micro = 2, .beside = kBytesOfInputs + 512},
        LimitCase{.recipe = "tensorwise",
                  .dtype = DType::kBFloat16,
                  .release = true,
                  .beside = 4096},
        LimitCase{.recipe = "delayed", .beside = 4096}),
    [](const auto& info) {
      return Concat(info.param.recipe, "_", Name(info.param.dtype), "_",
                    info.param.micro);
    });

TEST_P(LimitedMemory, IsEnoughForAllThatIsAccepted) {
  const LimitCase& c = GetParam();
  const Batches batches = TokenSteps(static_cast<size_t>(c.micro), kSamples)[0];
  const NeededMemory needed = BytesOfSteps(c, batches);
  EXPECT_LT(needed.least, needed.most);
  for (size_t bytes : {needed.least, needed.halfway(), needed.most}) {
    SCOPED_TRACE(bytes);
    LimitedSession limited(c, bytes);
    EXPECT_FALSE(limited.session->Step(batches, 1e-3).skipped);
    EXPECT_FALSE(limited.session->Step(batches, 1e-3).skipped);
    // Otherwise a plan that counts too little could pass.
    const bool is_tight = bytes == needed.least || bytes == needed.most;
    if (is_tight) {
      EXPECT_GT(limited.account->most_used, bytes * 9 / 10);
    }
  }
}

// The evaluation and the training step make room for one another.
TEST(LimitedMemoryOfPlans, IsEnoughForOneAfterTheOther) {
  const LimitCase c = {.recipe = "off"};
  const Batches batches = TokenSteps(1, kSamples)[0];
  LimitedSession limited(c, BytesOfSteps(c, batches).least);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(limited.session->Step(batches, 1e-3).skipped);
    EXPECT_TRUE(limited.session->Eval(batches[0]).has_loss);
  }
}

// The cache drops the training step, and the next plan is not counted with it.
TEST(LimitedMemoryOfPlans, DoesNotKeepTheArenaOfAPlanThatIsGone) {
  SessionOptions options = OptionsOf({.recipe = "off"});
  options.memory = "1GiB";
  options.max_plans = 1;
  auto session = TrainingSession::Create(options);
  session->Step(TokenSteps(1, 8)[0], 1e-3);
  const size_t arena = session->Memory().arena_bytes;
  session->Eval(TokenSteps(1, 2)[0][0]);
  session->Eval(TokenSteps(1, 1)[0][0]);
  EXPECT_LT(session->Memory().arena_bytes, arena / 2);
}

}  // namespace
}  // namespace onnx_fp8
