// SPDX-License-Identifier: Apache-2.0
#include "python/session.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "cli/ranks.h"
#include "cli/run_session.h"
#include "onnx_fp8/option_names.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"
#include "training/session/make_session.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

// The help of a session: it lists the options of `train`, except the options of
// the training loop.
CommandHelp SessionHelp() {
  CommandHelp help = WithSession({"TrainingSession", "", {}, {}});
  help.sections.push_back(
      {"",
       {"Model", "Seed", "Accumulation", "Ranks", "Job", "Optimizer",
        "eval_with", "Weights", "Start", "Timeline", "Machine"}});
  return help;
}

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
      throw OptionError(Concat("`mesh`: expected ", job->mesh,
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

std::string SessionKeywords() { return Flags(SessionHelp()).Keywords(); }

HostSession::HostSession(const Arguments& arguments) {
  Flags flags(SessionHelp()), of_train(TrainHelp());
  of_train.Parse(arguments);
  for (const auto& [name, value] : arguments.values) {
    if (flags.Find(name)) continue;
    throw OptionError(Reference(name) +
                      " is an option of onnx_fp8.train, not of a session");
  }
  flags.Parse(arguments);
  flags.RequireBeside("checkpoint", "ort_training");
  if (flags.Has("ort_training")) start_.emplace(flags);
  flags.Require({"MODEL"});
  SessionOptions options = SessionOptionsOf(flags, flags.Text("MODEL"));
  options.before_plan = {};  // the process' memory is not ours
  CheckRanks(flags);
  ApplyMachine(flags);
  ranks_ = OpenRanks(flags.Text("mesh"), SecretOf(flags, ""));
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
  lr_ = flags.Number("lr");
}

HostSession::~HostSession() = default;

void HostSession::RequireLoss() const {
  if (has_loss_) return;
  throw OptionError("`loss` is missing: expected " + LossNames() +
                    " where the session is made");
}

}  // namespace onnx_fp8
