// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/joined.h"
#include "base/number_text.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/interrupt.h"
#include "cli/json_line.h"
#include "cli/ort_training.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/report/choose_recipes.h"
#include "cli/report/memory_text.h"
#include "cli/report/profile_text.h"
#include "cli/report/text.h"
#include "cli/report/timeline_text.h"
#include "cli/report/training_log.h"
#include "cli/run_session.h"
#include "collectives/agreement.h"
#include "data/data_files.h"
#include "onnx_fp8/option_names.h"
#include "onnx_fp8/recipe_text.h"
#include "onnx_fp8/trainer.h"
#include "optimizers/own_optimizer.h"
#include "training/make_provider.h"
#include "training/run/batch_groups.h"
#include "training/run/event_file.h"
#include "training/run/session_options.h"
#include "training/session/make_session.h"
#include "training/step/given_weights.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

void Say(const std::string& text) {
  ProgressOut() << "onnx-fp8: " << Printable(text) << "\n";
}

// The most memory that the process ever held. (getrusage would count what the
// process that has started this one held by then.)
size_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    size_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

class TrainCommand {
 public:
  // `host`: null for the program itself.
  TrainCommand(Flags& flags, const TrainHost* host)
      : flags_(flags), host_(host), out_(flags.Text("out")), folder_(out_) {}

  // As commands.h says; the flags have `resume`.
  void Replay(const std::string& checkpoint,
              const std::function<void(const ReplayedRun&)>& use) {
    replayed_ = checkpoint;
    ReadFolder();
    CreateSession();
    OpenData();
    use({*session_, *data_, spec_});
  }

  int Execute() {
    const std::string mesh = flags_.Text("mesh");
    const SecretChoice secret = SecretOf(flags_, out_);
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
    if (AutoSqnr(flags_.Text("recipe"))) ChooseRecipes();
    CreateSession();
    OpenData();
    CompareRanks();
    const bool ended =
        session_->step() >= spec_.steps || spec_.early_stop.Ends();
    const bool done = ended && !spec_.validate_first;
    if (!IsFirst()) return done ? 0 : Follow();
    if (done) return ReportFinished();
    MakeFolder();
    Progress progress;
    FlagMap saved = flags_.Saved();
    ResolveFiles(flags_, &saved);
    folder_.Write(model_, KeptFlags(saved), ShowCopies(progress),
                  MarksOfFiles(), OtherModels(),
                  flags_.Has("weights") || flags_.Has("init"));
    ShareFolder();
    // The copy of the model has no moments; a run may end before it saves.
    if (start_ && start_->has_moments()) session_->Save(out_);
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
  bool SharesState() const { return DividesState(flags_); }
  // Errors: ranks with other flags, data or steps.
  void CompareRanks();
  // Trains beside the first rank.
  int Follow();
  void NoteFirst(const std::vector<std::string>& notes) const {
    if (IsFirst() && !replayed_) Notes(notes);
  }
  // Whether the session starts at a checkpoint of the run.
  bool Restores() const {
    return flags_.On("resume") &&
           (replayed_ ? !replayed_->empty() : folder_.HasCheckpoint());
  }
  void RequireNoRun() const;
  // Checks everything that needs no model; sets the threads.
  void CheckOptions() const;
  // The options of the session, with the run's own model.
  SessionOptions MakeOptions() const;
  // Locks an existing folder; fills in the flags of an earlier run.
  void ReadFolder();
  // The paths of a loss and of an optimizer that the flags name.
  KeptModels OtherModels() const;
  // Marks of the data and the scales that the flags name.
  FileMarks MarksOfFiles() const;
  // Says which of them have changed. Errors: other scales.
  void CompareFiles(const FileMarks& before) const;
  // Measures for `recipe` auto, and sets `recipe_for`. Errors: several ranks, a
  // run that goes on.
  void ChooseRecipes();
  void CreateSession();
  // All samples that the flags name, in the run's order.
  DatasetSpec TrainingData(const DataLayout& layout) const;
  void OpenData();
  // Errors: the model takes batches of another size.
  int64_t ValBatchSize() const;
  // Errors: a schedule longer than the run.
  void FillSpec();
  // Errors: a step to dump that the run does not reach.
  void CheckDumpedSteps() const;
  // Errors: data of unknown length.
  int64_t StepsOf(int64_t epochs) const;
  BatchGroups Groups() const {
    return GroupsOf(*session_, *data_, spec_.grad_accum);
  }
  // Says it if the learning rate does not get to its full height.
  void TellWarmup() const;
  // Says how groups and epochs end, if `grad_accum` does not divide an epoch.
  void TellRest() const;
  void Resume();
  // Restores the checkpoint of a run that is done again.
  void RestoreReplayed();
  void MakeFolder();
  // Ranks that write into the folder keep other jobs out of it, also if they
  // outlive the first rank.
  void ShareFolder();
  int ReportFinished() const;
  int Conclude(const TrainerResult& result);
  // The run ends because a step is not finite: explains it, if `on_nonfinite`
  // says so, and throws. `json`: as ExplainRun's.
  void ConcludeNotFinite(const TrainerResult& result, Json* json);
  Json Summary(const TrainerResult& result) const;
  // Bytes that this rank has received from others in a step, by kind of call,
  // and the time that this took.
  void AddReceived(int64_t steps, Json* json) const;
  // Adds the reports that --memory-report, --profile-summary and --timeline ask
  // for to `json`; prints them as text if `json` is null.
  void Report(Json* json) const;
  std::string ResumeCommand() const {
    std::vector<std::string> words = {program_invocation_name, "train",
                                      "--resume", "--out", out_};
    const std::string events = flags_.Text("tensorboard");
    if (!events.empty()) words.insert(words.end(), {"--tensorboard", events});
    return ShellLine(words);
  }

  Flags& flags_;
  const TrainHost* host_;
  const std::string out_;
  std::string model_;
  std::optional<std::string> replayed_;  // a checkpoint: nothing is written
  std::vector<std::string> files_, val_files_;  // or the names of arrays
  // Null: this process trains alone.
  Communicator* world_ = nullptr;
  std::shared_ptr<const MeshRanks> ranks_;
  WireBytes received_before_;
  RunFolder folder_;
  FileMarks kept_marks_;  // of scales that are not read again
  bool folder_is_new_ = false;
  bool has_scales_ = false;        // in the checkpoint: the file may be gone
  std::optional<OrtStart> start_;  // of --ort-training
  std::string provider_;
  std::unique_ptr<TrainingSession> session_;
  std::optional<Dataset> data_, validation_;
  TrainerSpec spec_;
};

void TrainCommand::CheckOptions() const {
  if (flags_.Has("steps") == flags_.Has("epochs")) {
    throw OptionError("expected one of `steps` and `epochs`");
  }
  for (const char* name :
       {"val_every", "val_batch_size", "save_best", "early_stop"}) {
    if (!flags_.Has(name) || !val_files_.empty()) continue;
    throw OptionError(Reference(name) + " needs `val_data`");
  }
  flags_.RequireBeside("checkpoint", "ort_training");
  flags_.Exclude("lora", "ort_training");
  flags_.RequireBeside("timeline_steps", "timeline");
  CheckRanks(flags_);
  DataWeightsOf(flags_);
  ScheduleOf(flags_);
  EarlyStopOf(flags_);
  SpikeOf(flags_);
  MakeOptions();
  ApplyMachine(flags_);
  const std::string events = flags_.Text("tensorboard");
  if (!events.empty() && IsFirst()) CheckEventFolder(events);
}

SessionOptions TrainCommand::MakeOptions() const {
  OptionSet options = flags_;
  if (has_scales_) options.Forget("scales");
  if (AutoSqnr(options.Text("recipe"))) options.Set("recipe", "off");
  return SessionOptionsOf(options, model_);
}

void TrainCommand::RequireNoRun() const {
  Check(!folder_.HoldsRun(), "[", out_,
        "] holds a run already: `resume` goes on with it, another `out` starts "
        "a new one");
}

void TrainCommand::ReadFolder() {
  folder_is_new_ = !IsFolder(out_);
  FileMarks before;
  // Another process may be changing the folder: lock it before reading
  // anything.
  bool changes = IsFirst() && !replayed_;
  if (!folder_is_new_ && changes) folder_.Lock();
  if (!flags_.On("resume") && changes) RequireNoRun();
  if (flags_.On("resume") && folder_.HasConfig()) {
    RunConfig config = LoadRun(folder_);
    if (flags_.Given("MODEL")) {
      const std::string model = flags_.Text("MODEL");
      Check(FileCrc(model) == config.crc, "[", model,
            "] is not the model of this run; leave it out to go on with the "
            "run's own copy, ",
            config.model);
    }
    if (host_ && host_->data.given()) config.settings.erase("--data");
    if (host_ && host_->val_data.given()) config.settings.erase("--val-data");
    bool total = flags_.Given("steps") || flags_.Given("epochs");
    if (total) {
      config.settings.erase("--steps");
      config.settings.erase("--epochs");
    }
    FillFrom(config, flags_);
    model_ = config.model;
    if (Restores() && !flags_.Given("scales")) {
      has_scales_ = true;
      const auto scales = config.files.find("--scales");
      if (scales != config.files.end()) kept_marks_.insert(*scales);
    }
    before = config.files;
  } else {
    if (flags_.Has("ort_training")) start_.emplace(flags_);
    flags_.Require({"MODEL"});
    model_ = flags_.Text("MODEL");
  }
  // The names of arrays in memory stand in messages.
  val_files_ = flags_.List("val_data");
  files_ = flags_.List("data");
  if (host_ && host_->val_data.given()) val_files_ = {"val_data"};
  if (host_ && host_->data.given()) {
    files_ = {"data"};
  } else {
    flags_.Require({"data"});
  }
  CompareFiles(before);
  CheckOptions();
  if (!folder_is_new_ && changes) folder_.Clean();
}

FileMarks TrainCommand::MarksOfFiles() const {
  FileMarks marks = kept_marks_;
  const auto add = [&](const char* flag, const std::vector<std::string>& files,
                       bool in_memory) {
    const DType dtype = ParseDType(flags_.Text("token_dtype"));
    for (const std::string& item : files) {
      if (in_memory) continue;
      for (const std::string& file : DataFiles(item, dtype)) {
        marks[flag].push_back(FileMark(file));
      }
    }
  };
  add("--data", files_, host_ && host_->data.given());
  if (!replayed_) {
    add("--val-data", val_files_, host_ && host_->val_data.given());
  }
  if (flags_.Has("scales") && !has_scales_) {
    marks["--scales"] = {FileMark(flags_.Text("scales"))};
  }
  return marks;
}

KeptModels TrainCommand::OtherModels() const {
  KeptModels others;
  const std::string loss = flags_.Text("loss");
  const std::string optimizer = flags_.Text("optimizer");
  if (IsLossFile(loss)) others["loss"] = loss;
  if (IsOptimizerFile(optimizer)) others["optimizer"] = optimizer;
  return others;
}

void TrainCommand::CompareFiles(const FileMarks& before) const {
  const FileMarks now = MarksOfFiles();
  const auto scales = now.find("--scales");
  Check(scales == now.end() || flags_.Given("scales") ||
            !before.contains("--scales") ||
            before.at("--scales") == scales->second,
        "[", flags_.Text("scales"),
        "] is not the file that the run was started with; `scales` takes it "
        "as it is now");
  for (const char* name : {"data", "val_data"}) {
    const std::string flag = FlagOf(name);
    const auto old = before.find(flag), other = now.find(flag);
    if (old == before.end() || other == now.end() ||
        old->second == other->second ||
        std::ranges::count(other->second, "") > 0) {  // an error follows
      continue;
    }
    Check(!replayed_, "[", out_,
          "] expected the data of the run, got files of "
          "another size or content: ",
          Joined(files_));
    NoteFirst({Concat(Reference(name),
                      ": the files have another size or content than "
                      "those with which the run went on before: ",
                      Joined(flag == "--data" ? files_ : val_files_),
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

void TrainCommand::ChooseRecipes() {
  if (world_ || flags_.On("resume")) {
    throw OptionError(
        Concat("`recipe` auto measures in a new run of one process: give ",
               world_ ? "the ranks" : "a run that goes on",
               " a file of `sensitivity()`"));
  }
  if (host_ && host_->data.source) {
    throw OptionError(
        "`recipe` auto reads the first batches twice: expected `data` in files "
        "or arrays, got batches that come once");
  }
  SensitivitySpec spec;
  spec.options = MakeOptions();
  if (host_) spec.options.before_plan = {};
  spec.recipes = ComparedRecipesOf("recipe", SplitWords(kComparedRecipes, ','));
  spec.sqnr = *AutoSqnr(flags_.Text("recipe"));
  spec.batches = 1;
  spec.first_only = true;
  auto session = TrainingSession::Create(spec.options);
  const Dataset data(TrainingData(
      LayOutData(session->Inputs(), session->Loss(), DataOf(flags_))));
  session.reset();
  const std::optional<Sensitivity> result = MeasureAndShow(spec, data);
  if (!result) throw Interruption("interrupted: no step is done");
  std::vector<std::string> words = flags_.List("recipe_for");
  for (const LayerSensitivity& layer : result->layers) {
    words.push_back(layer.fqn + "=" + RecipeText(layer.chosen));
    if (!layer.reason.empty()) Note(ReasonText(layer, spec.recipes));
  }
  Note(RecipeCounts(*result, spec.recipes));
  flags_.Set("recipe", "off");
  flags_.Set("recipe_for", words);
}

void TrainCommand::CreateSession() {
  SessionOptions options = MakeOptions();
  if (Restores()) LeaveWeights(&options);
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
    throw OptionError("`loss` is missing: expected " + LossNames());
  }
  spec_.grad_accum = decided.grad_accum;
  spec_.grad_accum_by = decided.grad_accum_by;
  spec_.lr = flags_.Has("lr") ? flags_.Number("lr") : decided.optimizer.lr;
  if (start_) start_->GoOn(*session_);
  std::vector<std::string> notes = session_->Notes();
  if (host_ && IsFirst()) {
    host_->events.Begun(session_->Trains());
    std::erase(notes, session_->Trains());
  }
  NoteFirst(notes);
  CheckNames(*session_);
}

DatasetSpec TrainCommand::TrainingData(const DataLayout& layout) const {
  DatasetSpec files = MakeDatasetSpec(files_, layout, BudgetsOf(flags_));
  files.shuffle = !flags_.On("no_shuffle");
  files.weights = DataWeightsOf(flags_);
  files.shuffle_block = flags_.Int("shuffle_block");
  files.seed = static_cast<uint64_t>(flags_.Int("seed"));
  files.drop_last = true;
  if (host_) host_->data.GiveTo(&files);
  return files;
}

void TrainCommand::OpenData() {
  spec_.layout =
      LayOutData(session_->Inputs(), session_->Loss(), DataOf(flags_));
  DatasetSpec files = TrainingData(spec_.layout);
  if (ranks_) {
    const bool shares = ranks_->mesh().data_ranks() > 1;
    Check(!shares || !spec_.layout.fixed_batch, "[", model_,
          "] expected an open batch axis, whose samples the ranks of `mesh` "
          "share, got batches of ",
          spec_.layout.batch_size);
    files.rank = static_cast<int>(ranks_->data_rank());
    files.ranks = static_cast<int>(ranks_->mesh().data_ranks());
  }
  data_.emplace(files);
  NoteFirst(data_->notes());
  if (!val_files_.empty() && !replayed_ && (IsFirst() || SharesState())) {
    DatasetSpec spec =
        MakeDatasetSpec(val_files_, spec_.layout, BudgetsOf(flags_));
    if (flags_.Has("val_batch_size")) spec.batch_size = ValBatchSize();
    if (host_) host_->val_data.GiveTo(&spec);
    validation_.emplace(spec);
    NoteFirst(validation_->notes());
  }
  FillSpec();
  TellWarmup();
  TellRest();
  if (validation_) CheckSaveBest(*session_, *validation_, spec_);
  if (replayed_) {
    RestoreReplayed();
  } else if (flags_.On("resume")) {
    Resume();
  }
}

int64_t TrainCommand::ValBatchSize() const {
  const int64_t wanted = flags_.Int("val_batch_size");
  const DataLayout& layout = spec_.layout;
  if (layout.fixed_batch && wanted != layout.batch_size) {
    throw OptionError(
        Concat("`val_batch_size`: the model was exported for batches of ",
               layout.batch_size, ", got ", wanted));
  }
  return wanted;
}

void TrainCommand::FillSpec() {
  spec_.folder = out_;
  spec_.ranks = ranks_.get();
  spec_.shared_state = SharesState();
  spec_.save_every = flags_.Int("save_every");
  spec_.keep_last = flags_.Int("keep_last");
  spec_.val_every = flags_.Int("val_every");
  spec_.save_best = flags_.Text("save_best");
  spec_.tensorboard = flags_.Text("tensorboard");
  spec_.early_stop = EarlyStopOf(flags_);
  spec_.stops_at_not_finite = flags_.Text("on_nonfinite") != "skip";
  spec_.spike = SpikeOf(flags_);
  spec_.schedule = ScheduleOf(flags_);
  spec_.steps = flags_.Int("steps");
  const int64_t epochs = flags_.Int("epochs");
  if (epochs > 0) spec_.steps = StepsOf(epochs);
  CheckDumpedSteps();
  const Schedule& schedule = spec_.schedule;
  if (schedule.decay > 0 && schedule.decay > spec_.steps - schedule.warmup) {
    throw OptionError(
        Concat("`schedule`: expected warm-up and decay of at most ",
               spec_.steps, " steps, as many as the run has, got ",
               schedule.warmup, " and ", schedule.decay));
  }
}

void TrainCommand::CheckDumpedSteps() const {
  for (const std::string& step : flags_.List("at_steps")) {
    int64_t number = 0;
    if (ReadNumber(step, &number) && number <= spec_.steps) continue;
    throw OptionError(
        Concat("`at_steps`: expected steps of the run, which has ", spec_.steps,
               ", got ", step));
  }
}

void TrainCommand::TellWarmup() const {
  const int64_t warmup = spec_.schedule.warmup;
  if (warmup <= spec_.steps) return;
  NoteFirst({Concat("the warm-up takes ", warmup, " steps and the run ",
                    spec_.steps, ": it ends at a rate of ",
                    NumberText(LearningRate(spec_.schedule, spec_.lr,
                                            spec_.steps, spec_.steps)),
                    " (`schedule`)")});
}

void TrainCommand::TellRest() const {
  const int64_t batches = data_->batches_per_epoch();
  if (batches % spec_.grad_accum == 0) return;
  const int64_t rest = Groups().rest();
  const std::string groups =
      rest > 0 ? Concat("its last step takes ", rest, " of ", spec_.grad_accum)
               : Concat("groups of ", spec_.grad_accum,
                        " cross its end, because the file's update divides "
                        "by this number");
  NoteFirst({Concat("an epoch has ", batches, " batches, and ", groups,
                    " (`grad_accum`)")});
}

int64_t TrainCommand::StepsOf(int64_t epochs) const {
  int64_t batches = 0;
  if (data_->batches_per_epoch() == 0) {
    throw OptionError(
        "`epochs`: expected data whose length is known, got batches without "
        "one: `steps` says how long to train");
  }
  Check(!__builtin_mul_overflow(epochs, data_->batches_per_epoch(), &batches),
        "`epochs`: expected less than 2^63 batches in all, got ", epochs,
        " times ", data_->batches_per_epoch());
  return std::max<int64_t>(1, Groups().StepsOf(epochs));
}

void TrainCommand::Resume() {
  if (!folder_.HasCheckpoint()) {
    if (!IsFirst()) return;
    Note("there is no checkpoint in " + out_ +
         ": the run starts at the beginning");
    return;
  }
  ResumeTraining(*session_, *data_, &spec_);
  if (!IsFirst()) return;
  Say(Concat("resuming at step ", session_->step(), " of ", spec_.steps));
}

void TrainCommand::RestoreReplayed() {
  if (replayed_->empty()) return;
  TrainerSpec spec = spec_;
  spec.folder = out_ + "/checkpoints/" + *replayed_;
  Check(IsFolder(spec.folder), "[", spec.folder,
        "] is gone: expected the checkpoint from which the step is done again");
  ResumeTraining(*session_, *data_, &spec);
}

void TrainCommand::CompareRanks() {
  if (!world_) return;
  std::vector<Fact> facts = {{"program", "onnx-fp8 " ONNX_FP8_VERSION}};
  FlagMap saved = flags_.Saved();
  if (start_) saved.erase("MODEL");  // each rank made its own
  for (const Option& option : flags_.options()) {
    if (option.more.of_one_rank) saved.erase(FlagOf(option.name));
  }
  for (const auto& [flag, words] : saved) {
    facts.push_back({flag, ShellLine(words)});
  }
  facts.push_back({"samples", std::to_string(data_->size())});
  facts.push_back({"step", Concat(session_->step(), " of ", spec_.steps)});
  facts.push_back({"model", FileCrc(model_)});
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
  const bool early = session_->step() < spec_.steps;
  if (flags_.On("json")) {
    Json json = {{"steps", session_->step()}, {"out", out_}};
    if (early) json["stopped_early"] = true;
    Out() << JsonLine(json);
  } else if (early) {
    Out() << InFlags(
        EarlyStopText(session_->step(), spec_.steps, spec_.early_stop) + "\n");
  } else {
    Out() << "the run in " << Printable(out_)
          << " is finished: " << session_->step() << " of " << spec_.steps
          << " steps are done; more --steps go on with it\n";
  }
  return 0;
}

Json TrainCommand::Summary(const TrainerResult& r) const {
  Json json = {{"steps", session_->step()},
               {"skipped_steps", session_->skipped_steps()},
               {"loss", r.loss}};
  if (r.update_amax >= 0) json["update_amax"] = r.update_amax;
  if (r.validation) {
    json["val_loss"] = r.validation->loss;
    if (r.validation->accuracy) json["val_accuracy"] = *r.validation->accuracy;
    if (r.validation->perplexity) {
      json["val_perplexity"] = *r.validation->perplexity;
    }
    if (r.validation->of_averages) json["val_weights"] = "ema";
    for (const auto& [name, value] : r.validation->measures) {
      json["val_" + name] = value;
    }
  }
  if (r.best_step > 0) json["best_step"] = r.best_step;
  if (r.stopped_early) json["stopped_early"] = true;
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
  if (memory.outside_bytes > 0) json["outside_bytes"] = memory.outside_bytes;
  AddReceived(r.steps, &json);
  json["trains"] = InFlags(session_->Trains());
  json["out"] = out_;
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
  if (flags_.On("memory_report")) {
    MemoryReport report = session_->ReportMemory();
    ProcessMemory process{PeakBytes(), session_->Memory().arena_bytes};
    if (json) {
      (*json)["memory"] = MemoryJson(report, process);
    } else {
      PrintMemoryReport(report, process, Out());
    }
  }
  if (flags_.On("profile_summary")) {
    ProfileReport report = session_->ReportProfile();
    MachinePeaks peaks = MakeProvider(provider_)->MeasurePeaks();
    if (json) {
      (*json)["profile"] = ProfileJson(report, peaks);
    } else {
      PrintProfile(report, peaks, Out());
    }
  }
  if (!flags_.Text("timeline").empty()) {
    TimelineReport report = session_->ReportTimeline();
    if (json) {
      (*json)["timeline"] = TimelineJson(report);
    } else {
      PrintTimeline(report, Out());
    }
  }
}

void TrainCommand::ConcludeNotFinite(const TrainerResult& r, Json* json) {
  const bool explains = flags_.Text("on_nonfinite") == "explain";
  std::string then =
      "; `explain()` of the run's folder finds where it "
      "comes from";
  if (explains && (world_ || (host_ && host_->data.given()))) {
    then = world_ ? "; the step of several ranks can't be done again alone"
                  : "; the step can't be done again without its data";
  } else if (explains) {
    then.clear();
    session_.reset();  // its memory is for the step that is done again
    ExplainRun(out_, {}, json);
  }
  if (json) Out() << JsonLine(*json);
  Fail("the run ends after step ", r.not_finite_step, ": ", r.not_finite,
       " (`on_nonfinite`)", then);
}

int TrainCommand::Conclude(const TrainerResult& r) {
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
  if (flags_.On("json")) {
    Report(&json);
    if (r.not_finite_step > 0) ConcludeNotFinite(r, &json);
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
    if (r.not_finite_step > 0) ConcludeNotFinite(r, nullptr);
  }
  if (session_->step() > 0 && session_->skipped_steps() == session_->step()) {
    Warn(Concat("all ", session_->step(),
                " steps of the run were skipped: nothing is trained"));
  }
  Check(r.saved, "the last step is not saved: ", r.save_error);
  return 0;
}

int TrainFor(const TrainHost* host, const Arguments& arguments) {
  Flags flags(TrainHelp());
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"out"});
  return TrainCommand(flags, host).Execute();
}

}  // namespace

void Replay(const std::string& folder, const std::string& checkpoint,
            const std::map<std::string, OptionValue>& own,
            const std::function<void(const ReplayedRun&)>& use) {
  Flags flags(TrainHelp());
  std::map<std::string, OptionValue> values = own;
  values["resume"] = true;
  values["out"] = folder;
  if (!flags.Parse({{}, values})) return;
  TrainCommand(flags, nullptr).Replay(checkpoint, use);
}

int Train(const Arguments& arguments) { return TrainFor(nullptr, arguments); }

int Train(const Arguments& arguments, const TrainHost& host) {
  return TrainFor(&host, arguments);
}

}  // namespace onnx_fp8
