// SPDX-License-Identifier: Apache-2.0
#include "python/session.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "cli/ranks.h"
#include "cli/train_flags.h"
#include "training/make_provider.h"
#include "training/session/make_session.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

// Flags of `train` that say how its loop runs.
constexpr const char* kOfTheLoop[] = {
    "--data",       "--val-data",      "--batch-size",
    "--whole",      "--seq-len",       "--token-dtype",
    "--no-shuffle", "--steps",         "--epochs",
    "--save-every", "--val-every",     "--save-best",
    "--schedule",   "--out",           "--resume",
    "--json",       "--memory-report", "--profile-summary"};

// All ranks of a job, and how they divide the work.
struct Job {
  std::string mesh;
  std::unique_ptr<Communicator> world;
  std::shared_ptr<const MeshRanks> ranks;
};

std::mutex job_mutex;
std::optional<Job> job;

}  // namespace

std::shared_ptr<const MeshRanks> OpenRanks(const std::string& mesh,
                                           const SecretChoice& secret) {
  std::lock_guard lock(job_mutex);
  if (job) {
    if (mesh != job->mesh) {
      throw UsageError(Concat("--mesh: expected ", job->mesh,
                              ", with which this process began, got ",
                              mesh.empty() ? "none" : mesh));
    }
    return job->ranks;
  }
  std::unique_ptr<Communicator> world = OpenWorld(mesh, secret);
  if (!world) return nullptr;
  auto ranks = std::make_shared<const MeshRanks>(MeshOf(mesh), *world);
  job.emplace(mesh, std::move(world), std::move(ranks));
  return job->ranks;
}

void CloseRanks() {
  std::lock_guard lock(job_mutex);
  if (!job) return;
  job->ranks.reset();
  job.reset();
}

void AbortRanks(const std::string& reason) {
  if (job) job->world->Abort(reason);
}

HostSession::HostSession(const Arguments& arguments) {
  Flags flags("TrainingSession", "");
  TrainFlags values;
  values.AddTo(flags, true);
  flags.Parse(arguments);
  for (const char* flag : kOfTheLoop) {
    if (flags.Given(flag)) {
      throw UsageError(Concat(flag,
                              " is an option of onnx_fp8.train, not of a "
                              "session"));
    }
  }
  values.CheckStart();
  if (!values.ort_training.empty()) start_.emplace(flags, values);
  flags.Require({"MODEL"});
  SessionOptions options = values.MakeSession(flags);
  options.before_plan = {};  // the process' memory is not ours
  values.shard.Check(flags);
  values.machine.Apply();
  ranks_ = OpenRanks(values.shard.mesh,
                     values.job_secret.Make(values.shard.mesh, ""));
  session_ = MakeSession(
      options, MakeProvider(options.provider, options.provider_options),
      ranks_.get());
  if (start_) start_->GoOn(*session_);
  inputs_ = session_->Inputs();
  const LossSpec loss = session_->Loss();
  has_loss_ = !loss.kind.empty();
  const LossKind* kind = FindLoss(loss.kind);
  if (kind && std::ranges::find(inputs_, loss.label, &InputInfo::name) ==
                  inputs_.end()) {
    inputs_.push_back(
        {.name = loss.label, .dtype = kind->label, .is_label = true});
  }
  soft_labels_ = kind && kind->soft;
  lr_ = values.optimizer.lr;
}

HostSession::~HostSession() = default;

void HostSession::RequireLoss() const {
  if (has_loss_) return;
  throw UsageError("--loss is missing: expected " + LossNames() +
                   " where the session is made");
}

}  // namespace onnx_fp8
