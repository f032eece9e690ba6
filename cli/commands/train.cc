// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/joined.h"
#include "base/printable.h"
#include "cli/api_names.h"
#include "cli/commands/commands.h"
#include "cli/interrupt.h"
#include "cli/json_line.h"
#include "cli/options.h"
#include "cli/ort_training.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/report/memory_text.h"
#include "cli/report/profile_text.h"
#include "cli/report/text.h"
#include "cli/report/timeline_text.h"
#include "cli/report/training_log.h"
#include "cli/run_session.h"
#include "cli/train_flags.h"
#include "collectives/agreement.h"
#include "onnx_fp8/trainer.h"
#include "training/make_provider.h"
#include "training/session/make_session.h"
#include "training/step/draw_weights.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

void Say(const std::string& text) {
  ProgressOut() << "onnx-fp8: " << Printable(text) << "\n";
}

// The most memory that the process ever held.
size_t PeakBytes() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

class TrainCommand {
 public:
  // `host`: null for the program itself.
  TrainCommand(Flags& flags, TrainFlags& values, const TrainHost* host)
      : flags_(flags), values_(values), host_(host), folder_(values.out) {}

  int Execute() {
    const std::string& mesh = values_.shard.mesh;
    const SecretChoice secret = values_.job_secret.Make(mesh, values_.out);
    if (host_) {
      TakeRanks(host_->ranks(mesh, secret));
      return Train();
    }
    auto world = OpenWorld(mesh, secret);
    try {
      if (world) {
        TakeRanks(std::make_shared<const MeshRanks>(MeshOf(mesh), *world));
      }
      return Train();
    } catch (const std::exception& error) {
      // The other ranks wait for this one.
      if (world) world->Abort(InFlags(error.what()));
      throw;
    }
  }

 private:
  void TakeRanks(std::shared_ptr<const MeshRanks> ranks) {
    if (!ranks) return;
    world_ = &ranks->world();
    received_before_ = world_->wire_bytes();
    ranks_ = std::move(ranks);
  }

  int Train() {
    // The first rank locks the folder; then the others may read it.
    if (IsFirst()) ReadFolder();
    if (world_) world_->Barrier();
    if (!IsFirst()) ReadFolder();
    CreateSession();
    OpenData();
    CompareRanks();
    bool done = session_->step() >= spec_.steps && !spec_.validate_first;
    if (!IsFirst()) return done ? 0 : Follow();
    if (done) return ReportFinished();
    MakeFolder();
    Progress progress;
    FlagMap saved = flags_.Saved();
    values_.session.recipe.Resolve(&saved);
    values_.session.loss.Resolve(&saved);
    const std::string& loss = values_.session.loss.loss;
    folder_.Write(values_.model, KeptFlags(saved), ShowCopies(progress),
                  MarksOfFiles(), IsLossFile(loss) ? loss : "",
                  IsDrawn(values_.init));
    ShareFolder();
    // The copy of the model has no moments; a run may end before it saves.
    if (start_ && start_->has_moments()) session_->Save(values_.out);
    TrainingLog log(progress);
    TrainerResult result = RunLoop(log);
    progress.Close();
    return Conclude(result);
  }

  // `log` watches for the program itself.
  TrainerResult RunLoop(TrainerEvents& log) {
    if (!host_) CatchInterrupts();
    return RunTraining(*session_, *data_, validation_ ? &*validation_ : nullptr,
                       spec_, host_ && IsFirst() ? host_->events : log,
                       host_ ? host_->stop : Interrupted);
  }

  // Only the first rank prints. It writes alone, unless ranks share state.
  bool IsFirst() const { return !world_ || world_->rank() == 0; }
  bool SharesState() const { return values_.shard.DividesState(); }
  // Errors: ranks with other flags, data or steps.
  void CompareRanks();
  // Trains beside the first rank.
  int Follow();
  void NoteFirst(const std::vector<std::string>& notes) const {
    if (IsFirst()) Notes(notes);
  }
  void RequireNoRun() const;
  // Locks an existing folder; fills in the flags of an earlier run.
  void ReadFolder();
  // Marks of the data and the scales that the flags name.
  FileMarks MarksOfFiles() const;
  // Says which of them have changed. Errors: other scales.
  void CompareFiles(const FileMarks& before) const;
  void CreateSession();
  void OpenData();
  void FillSpec();
  void Resume();
  void MakeFolder();
  // Ranks that write into the folder keep other jobs out of it, also if they
  // outlive the first rank.
  void ShareFolder();
  int ReportFinished() const;
  int Conclude(const TrainerResult& result) const;
  Json Summary(const TrainerResult& result) const;
  // Bytes that this rank has received from others in a step, by kind of call,
  // and the time that this took.
  void AddReceived(int64_t steps, Json* json) const;
  // Adds the reports that --memory-report, --profile-summary and --timeline ask
  // for to `json`; prints them as text if `json` is null.
  void Report(Json* json) const;
  std::string ResumeCommand() const {
    return ShellLine(
        {program_invocation_name, "train", "--resume", "--out", values_.out});
  }

  Flags& flags_;
  TrainFlags& values_;
  const TrainHost* host_;
  // Null: this process trains alone.
  Communicator* world_ = nullptr;
  std::shared_ptr<const MeshRanks> ranks_;
  WireBytes received_before_;
  RunFolder folder_;
  FileMarks kept_marks_;  // of scales that are not read again
  bool folder_is_new_ = false;
  std::optional<OrtStart> start_;  // of --ort-training
  std::string provider_;
  std::unique_ptr<TrainingSession> session_;
  std::optional<Dataset> data_, validation_;
  TrainerSpec spec_;
};

void TrainCommand::RequireNoRun() const {
  Check(!folder_.HoldsRun(), "[", values_.out,
        "] holds a run already: --resume goes on with it, another --out starts "
        "a new one");
}

void TrainCommand::ReadFolder() {
  folder_is_new_ = !IsFolder(values_.out);
  // Another process may be changing the folder: lock it before reading
  // anything.
  bool changes = IsFirst();
  if (!folder_is_new_ && changes) folder_.Lock();
  if (!values_.resume && changes) RequireNoRun();
  if (values_.resume && folder_.HasConfig()) {
    RunConfig config = LoadRun(folder_);
    if (flags_.Given("MODEL")) {
      Check(FileCrc(values_.model) == config.crc, "[", values_.model,
            "] is not the model of this run; leave it out to go on with the "
            "run's own copy, ",
            config.model);
    }
    if (host_ && host_->data.given()) config.settings.erase("--data");
    if (host_ && host_->val_data.given()) config.settings.erase("--val-data");
    bool total = flags_.Given("--steps") || flags_.Given("--epochs");
    if (total) {
      config.settings.erase("--steps");
      config.settings.erase("--epochs");
    }
    FillFrom(config, flags_);
    values_.model = config.model;
    // The checkpoint has the run's scales; the file may no longer exist.
    if (folder_.HasCheckpoint() && !flags_.Given("--scales")) {
      values_.session.recipe.scales.clear();
      const auto scales = config.files.find("--scales");
      if (scales != config.files.end()) kept_marks_.insert(*scales);
    }
    CompareFiles(config.files);
  } else {
    if (!values_.ort_training.empty()) start_.emplace(flags_, values_);
    flags_.Require({"MODEL"});
  }
  // The names of arrays in memory stand in messages.
  if (host_ && host_->val_data.given()) values_.val_data = {"val_data"};
  if (host_ && host_->data.given()) {
    values_.data = {"data"};
  } else {
    flags_.Require({"--data"});
  }
  values_.Check(flags_);
  if (!folder_is_new_ && changes) folder_.Clean();
}

FileMarks TrainCommand::MarksOfFiles() const {
  FileMarks marks = kept_marks_;
  const auto add = [&](const char* flag, const std::vector<std::string>& files,
                       bool in_memory) {
    for (const std::string& file : files) {
      if (!in_memory) marks[flag].push_back(FileMark(file));
    }
  };
  add("--data", values_.data, host_ && host_->data.given());
  add("--val-data", values_.val_data, host_ && host_->val_data.given());
  if (const std::string& scales = values_.session.recipe.scales;
      !scales.empty()) {
    add("--scales", {scales}, false);
  }
  return marks;
}

void TrainCommand::CompareFiles(const FileMarks& before) const {
  const FileMarks now = MarksOfFiles();
  const auto scales = now.find("--scales");
  Check(scales == now.end() || flags_.Given("--scales") ||
            !before.contains("--scales") ||
            before.at("--scales") == scales->second,
        "[", values_.session.recipe.scales,
        "] is not the file that the run was started with; --scales takes it "
        "as it is now");
  for (const char* flag : {"--data", "--val-data"}) {
    const auto old = before.find(flag), other = now.find(flag);
    if (old == before.end() || other == now.end() ||
        old->second == other->second ||
        std::ranges::count(other->second, "") > 0) {  // an error follows
      continue;
    }
    NoteFirst(
        {Concat(flag,
                ": the files have another size or content than "
                "those with which the run went on before: ",
                Joined(flag == std::string_view("--data") ? values_.data
                                                          : values_.val_data),
                "; it goes on with them")});
  }
}

// Runs after the flags, the model and the data have been checked.
void TrainCommand::MakeFolder() {
  if (!folder_is_new_) return;
  folder_.Lock();
  RequireNoRun();  // another process may have made one since
}

void TrainCommand::ShareFolder() {
  if (!SharesState()) return;
  if (IsFirst()) folder_.Share();
  world_->Barrier();
  if (!IsFirst()) folder_.Share();
}

void TrainCommand::CreateSession() {
  bool restores = values_.resume && folder_.HasCheckpoint();
  SessionOptions options = values_.MakeSession(flags_);
  // The checkpoint has the weights; the file may no longer exist. Drawn weights
  // stand for data that the model's file lacks.
  if (restores && !IsDrawn(options.init)) options.init.clear();
  if (host_) options.before_plan = {};  // the process' memory is not ours
  provider_ = options.provider;
  if (!IsFirst()) {
    options.profile.clear();
    options.timeline.clear();
    options.provider_options.timeline = false;
    options.dump_passes.clear();
  }
  session_ = MakeSession(
      options, MakeProvider(provider_, options.provider_options), ranks_.get());
  // A training step in a file decides some of the flags.
  const SessionOptions& decided = session_->Options();
  if (decided.loss.kind.empty()) {
    throw UsageError("--loss is missing: expected " + LossNames());
  }
  values_.grad_accum = decided.grad_accum;
  if (!flags_.Has("--lr")) values_.optimizer.lr = decided.optimizer.lr;
  if (start_) start_->GoOn(*session_);
  std::vector<std::string> notes = session_->Notes();
  if (host_ && IsFirst()) {
    host_->events.Begun(session_->Trains());
    std::erase(notes, session_->Trains());
  }
  NoteFirst(notes);
  CheckNames(*session_);
}

void TrainCommand::OpenData() {
  spec_.layout = LayOutData(session_->Inputs(), session_->Loss(),
                            values_.data_flags.Make());
  Budgets budgets = values_.session.budgets.Make();
  DatasetSpec files = MakeDatasetSpec(values_.data, spec_.layout, budgets);
  files.shuffle = !values_.no_shuffle;
  files.seed = static_cast<uint64_t>(values_.seed);
  files.drop_last = true;
  if (host_) host_->data.GiveTo(&files);
  if (ranks_) {
    const bool shares = ranks_->mesh().data_ranks() > 1;
    Check(!shares || !spec_.layout.fixed_batch, "[", values_.model,
          "] expected an open batch axis, whose samples the ranks of --mesh "
          "share, got batches of ",
          spec_.layout.batch_size);
    files.rank = static_cast<int>(ranks_->data_rank());
    files.ranks = static_cast<int>(ranks_->mesh().data_ranks());
  }
  data_.emplace(files);
  NoteFirst(data_->notes());
  if (!values_.val_data.empty() && (IsFirst() || SharesState())) {
    DatasetSpec spec = MakeDatasetSpec(values_.val_data, spec_.layout, budgets);
    if (host_) host_->val_data.GiveTo(&spec);
    validation_.emplace(spec);
    NoteFirst(validation_->notes());
  }
  FillSpec();
  if (validation_) CheckSaveBest(*session_, *validation_, spec_);
  if (values_.resume) Resume();
}

void TrainCommand::FillSpec() {
  spec_.folder = values_.out;
  spec_.ranks = ranks_.get();
  spec_.shared_state = SharesState();
  spec_.grad_accum = values_.grad_accum;
  spec_.save_every = values_.save_every;
  spec_.val_every = values_.val_every;
  spec_.save_best = values_.save_best;
  spec_.lr = values_.optimizer.lr;
  spec_.schedule = values_.MakeSchedule();
  spec_.steps = values_.steps;
  if (values_.epochs == 0) return;
  int64_t batches = 0;
  if (data_->batches_per_epoch() == 0) {
    throw UsageError(
        "--epochs: expected data whose length is known, got batches without "
        "one: --steps says how long to train");
  }
  Check(!__builtin_mul_overflow(values_.epochs, data_->batches_per_epoch(),
                                &batches),
        "--epochs: expected less than 2^63 batches in all, got ",
        values_.epochs, " times ", data_->batches_per_epoch());
  spec_.steps = std::max<int64_t>(1, batches / values_.grad_accum);
}

void TrainCommand::Resume() {
  if (!folder_.HasCheckpoint()) {
    if (!IsFirst()) return;
    Note("there is no checkpoint in " + values_.out +
         ": the run starts at the beginning");
    return;
  }
  ResumeTraining(*session_, *data_, &spec_);
  if (!IsFirst()) return;
  Say(Concat("resuming at step ", session_->step(), " of ", spec_.steps));
}

void TrainCommand::CompareRanks() {
  if (!world_) return;
  std::vector<Fact> facts = {{"program", "onnx-fp8 " ONNX_FP8_VERSION}};
  for (const auto& [flag, words] : flags_.Saved()) {
    // Each rank may have its own of these.
    if (flag == "--profile" || flag == "--timeline" ||
        flag == "--dump-passes" || flag == "--job-secret" ||
        flag == "--insecure") {
      continue;
    }
    if (flag == "MODEL" && start_) continue;  // each rank made its own
    facts.push_back({flag, ShellLine(words)});
  }
  facts.push_back({"samples", std::to_string(data_->size())});
  facts.push_back({"step", Concat(session_->step(), " of ", spec_.steps)});
  facts.push_back({"model", FileCrc(values_.model)});
  CheckAgreement(*world_, "ranks", facts);
}

int TrainCommand::Follow() {
  if (!SharesState()) spec_.folder.clear();
  ShareFolder();
  TrainerEvents unwatched;
  TrainerResult result = RunLoop(unwatched);
  return result.interrupted ? kInterrupted : 0;
}

int TrainCommand::ReportFinished() const {
  if (values_.json) {
    Out() << JsonLine(Json{{"steps", session_->step()}, {"out", values_.out}});
  } else {
    Out() << "the run in " << Printable(values_.out)
          << " is finished: " << session_->step() << " of " << spec_.steps
          << " steps are done; more --steps go on with it\n";
  }
  return 0;
}

Json TrainCommand::Summary(const TrainerResult& r) const {
  Json json = {{"steps", session_->step()},
               {"skipped_steps", session_->skipped_steps()},
               {"loss", r.loss}};
  if (r.validation) {
    json["val_loss"] = r.validation->loss;
    if (r.validation->accuracy) json["val_accuracy"] = *r.validation->accuracy;
    if (r.validation->perplexity) {
      json["val_perplexity"] = *r.validation->perplexity;
    }
    for (const auto& [name, value] : r.validation->measures) {
      json["val_" + name] = value;
    }
  }
  if (r.best_step > 0) json["best_step"] = r.best_step;
  double seconds = std::max(r.seconds, 1e-9);
  json["seconds"] = r.seconds;
  json["samples_per_second"] = static_cast<double>(r.samples) / seconds;
  if (r.tokens > 0) {
    json["tokens_per_second"] = static_cast<double>(r.tokens) / seconds;
  }
  MemoryInfo memory = session_->Memory();
  json["peak_bytes"] = PeakBytes();
  json["arena_bytes"] = memory.arena_bytes;
  json["state_bytes"] = memory.state_bytes;
  AddReceived(r.steps, &json);
  json["trains"] = InFlags(session_->Trains());
  json["out"] = values_.out;
  return json;
}

// Averages over the steps done here. The host does not wait for NCCL, so only
// its bytes are known.
void TrainCommand::AddReceived(int64_t steps, Json* json) const {
  if (!world_ || steps == 0) return;
  const WireBytes& now = world_->wire_bytes();
  const WireBytes& before = received_before_;
  auto add = [&](const char* name, int64_t bytes) {
    (*json)[name] = bytes / steps;
  };
  add("received_by_all_reduce_bytes", now.all_reduce - before.all_reduce);
  add("received_by_all_gather_bytes", now.all_gather - before.all_gather);
  add("received_by_reduce_scatter_bytes",
      now.reduce_scatter - before.reduce_scatter);
  if (provider_ != "cpu") return;
  const TransferTimes times = session_->Transfers();
  const double ms = 1e3 / static_cast<double>(steps);
  (*json)["communication_ms"] = times.all * ms;
  (*json)["hidden_ms"] = times.hidden() * ms;
  (*json)["exposed_ms"] = times.exposed * ms;
}

void TrainCommand::Report(Json* json) const {
  if (session_->step() == 0) return;
  if (values_.memory_report) {
    MemoryReport report = session_->ReportMemory();
    ProcessMemory process{PeakBytes(), session_->Memory().arena_bytes};
    if (json) {
      (*json)["memory"] = MemoryJson(report, process);
    } else {
      PrintMemoryReport(report, process, Out());
    }
  }
  if (values_.profile_summary) {
    ProfileReport report = session_->ReportProfile();
    MachinePeaks peaks = MakeProvider(provider_)->MeasurePeaks();
    if (json) {
      (*json)["profile"] = ProfileJson(report, peaks);
    } else {
      PrintProfile(report, peaks, Out());
    }
  }
  if (!values_.timeline.empty()) {
    TimelineReport report = session_->ReportTimeline();
    if (json) {
      (*json)["timeline"] = TimelineJson(report);
    } else {
      PrintTimeline(report, Out());
    }
  }
}

int TrainCommand::Conclude(const TrainerResult& r) const {
  if (r.interrupted) {
    if (session_->step() == 0) {
      Say("interrupted before the first step; nothing is saved");
    } else if (r.saved) {
      Say(Concat("interrupted after step ", session_->step(), " of ",
                 spec_.steps, "; it is saved, to go on:"));
      ProgressOut() << "  " << Printable(ResumeCommand()) << "\n";
    } else {
      Say("interrupted, and step " + std::to_string(session_->step()) +
          " could not be saved");
    }
    return kInterrupted;
  }
  Json json = Summary(r);
  if (values_.json) {
    Report(&json);
    Out() << JsonLine(json);
  } else {
    Out() << "trained " << r.steps << " steps in " << DurationText(r.seconds)
          << "\n";
    for (const auto& [key, value] : json.items()) {
      std::string name = key;
      name.resize(20, ' ');
      bool bytes = key.ends_with("_bytes");
      Out() << "  " << name
            << (bytes                     ? ByteText(value.get<size_t>())
                : value.is_string()       ? value.get<std::string>()
                : value.is_number_float() ? Number(value.get<double>())
                                          : value.dump())
            << "\n";
    }
    Report(nullptr);
  }
  Check(r.saved, "the last step is not saved: ", r.save_error);
  return 0;
}

int TrainFor(const TrainHost* host, const Arguments& arguments) {
  bool omits_model = std::ranges::any_of(arguments, [](const auto& word) {
    return word == "--resume" || word.starts_with("--ort-training");
  });
  Flags flags("train", "Train an exported model.");
  TrainFlags values;
  values.AddTo(flags, omits_model);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"--out"});
  return TrainCommand(flags, values, host).Execute();
}

}  // namespace

int Train(const Arguments& arguments) { return TrainFor(nullptr, arguments); }

int Train(const Arguments& arguments, const TrainHost& host) {
  return TrainFor(&host, arguments);
}

}  // namespace onnx_fp8
