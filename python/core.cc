// SPDX-License-Identifier: Apache-2.0
//
// onnx_fp8._core: the part of the package that is C++. Options come as a dict
// of values, arrays as (array, name of the dtype). The package around it
// (python/onnx_fp8) is the interface for people.
#include <errno.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <signal.h>

#include <cstring>

#include "base/check.h"
#include "base/printable.h"
#include "cli/commands/commands.h"
#include "cli/feeds.h"
#include "cli/interrupt.h"
#include "cli/operator_new.h"
#include "cli/output.h"
#include "cli/report/training_log.h"
#include "cli/served_files.h"
#include "onnx_fp8/option_error.h"
#include "python/arrays.h"
#include "python/keywords.h"
#include "python/session.h"
#include "training/run/metrics.h"

namespace onnx_fp8 {
namespace {

namespace nb = nanobind;
using namespace nb::literals;
using WithoutLock = nb::call_guard<nb::gil_scoped_release>;

// {name: (array, name of the dtype)}, as the package makes them.
TensorMap TensorsOf(const nb::dict& arrays) {
  TensorMap tensors;
  for (auto [key, value] : arrays) {
    auto name = nb::cast<std::string>(key);
    auto pair = nb::cast<nb::tuple>(value);
    tensors[name] = TensorOf(pair[0], nb::cast<std::string>(pair[1]), name);
  }
  return tensors;
}

// Feeds in the dtypes of the model. Errors: an array that no input reads.
TensorMap FeedsOf(const HostSession& session, const nb::dict& arrays) {
  TensorMap feeds = TensorsOf(arrays);
  const std::vector<InputInfo>& inputs = session.inputs();
  for (auto& [name, tensor] : feeds) {
    std::string known;
    const InputInfo* input = nullptr;
    for (const InputInfo& info : inputs) {
      if (info.name == name) input = &info;
      known += (known.empty() ? "" : ", ") + info.name;
    }
    Check(input != nullptr, "[", name, "] expected one of the inputs ", known,
          ", got another array");
    const bool soft = input->is_label && session.soft_labels() &&
                      IsFloat(tensor.dtype()) && tensor.rank() >= 2;
    tensor = FeedAs(tensor, soft ? DType::kFloat : input->dtype, name);
  }
  return feeds;
}

// An item of a list, or a value of a dict, as a word.
std::string WordOf(nb::handle value) {
  if (PyBool_Check(value.ptr())) return value.is(Py_True) ? "true" : "false";
  if (PyFloat_Check(value.ptr())) {
    return WordsOf(nb::cast<double>(value)).front();
  }
  if (nb::hasattr(value, "__fspath__")) {
    return nb::cast<std::string>(value.attr("__fspath__")());
  }
  return nb::cast<std::string>(nb::str(value));
}

OptionValue ValueOf(const std::string& name, nb::handle value) {
  if (PyBool_Check(value.ptr())) return value.is(Py_True);
  if (PyIndex_Check(value.ptr()) && !nb::hasattr(value, "tolist")) {
    int overflow = 0;
    const long long number =
        PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0) return static_cast<int64_t>(number);
  }
  if (PyFloat_Check(value.ptr())) return nb::cast<double>(value);
  if (nb::isinstance<nb::dict>(value)) {
    if (name == "recipe") {
      return WordOf(nb::module_::import_("json").attr("dumps")(value));
    }
    std::vector<std::string> words;
    for (auto [key, item] : nb::cast<nb::dict>(value)) {
      words.push_back(WordOf(key) + "=" + WordOf(item));
    }
    return words;
  }
  if (nb::hasattr(value, "tolist")) {  // numpy's
    return ValueOf(name, value.attr("tolist")());
  }
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    std::vector<std::string> words;
    for (nb::handle item : value) words.push_back(WordOf(item));
    return words;
  }
  return WordOf(value);
}

// None: not given.
Arguments ArgumentsOf(const nb::dict& options) {
  Arguments arguments;
  for (auto [key, value] : options) {
    const std::string name = nb::cast<std::string>(key);
    if (!value.is_none()) arguments.values[name] = ValueOf(name, value);
  }
  return arguments;
}

nb::dict StepOf(const StepResult& step) {
  nb::dict result;
  result["step"] = step.step;
  result["loss"] = step.loss;
  result["grad_norm"] = step.grad_norm;
  result["loss_scale"] = step.loss_scale;
  result["update_amax"] = step.update_amax;
  result["skipped"] = step.skipped;
  result["cause"] = step.cause;
  result["remark"] = InKeywords(step.remark);
  if (step.casts.empty()) return result;
  nb::list casts;
  const nb::object read = nb::module_::import_("json").attr("loads");
  for (const MeasuredCast& cast : step.casts) casts.append(read(JsonOf(cast)));
  result["casts"] = casts;
  return result;
}

nb::dict EvaluationOf(const Evaluation& evaluation) {
  nb::dict result;
  result["loss"] = evaluation.loss;
  result["samples"] = evaluation.samples;
  if (evaluation.tokens > 0) result["tokens"] = evaluation.tokens;
  if (evaluation.of_averages) result["weights"] = "ema";
  if (!evaluation.cause.empty()) result["cause"] = evaluation.cause;
  if (evaluation.accuracy) result["accuracy"] = *evaluation.accuracy;
  if (evaluation.perplexity) result["perplexity"] = *evaluation.perplexity;
  for (const auto& [name, value] : evaluation.measures) {
    result[name.c_str()] = value;
  }
  return result;
}

// Runs `work` without Python's lock.
template <typename F>
auto Unlocked(F&& work) {
  nb::gil_scoped_release release;
  return work();
}

// A fact of the session. Another thread may be in the middle of a step; a
// thread that waits for it releases Python's lock.
template <typename F>
auto Ask(HostSession& session, F&& fn) {
  return Unlocked([&] { return session.With(fn); });
}

// `alone`: the caller has given a batch, and no list.
nb::dict Step(HostSession& session, const nb::list& batches,
              std::optional<double> lr, bool alone) {
  session.RequireLoss();
  if (alone) {
    const int64_t most =
        Ask(session, [](TrainingSession& s) { return s.Options().grad_accum; });
    Check(most == 1, "[batch] expected a list of ", most,
          " batches, as `grad_accum` says, got one batch");
  }
  std::vector<TensorMap> feeds;
  for (nb::handle batch : batches) {
    feeds.push_back(FeedsOf(session, nb::cast<nb::dict>(batch)));
  }
  StepResult result = Unlocked([&] {
    return session.With([&](TrainingSession& s) {
      return s.Step(feeds, lr.value_or(session.lr()));
    });
  });
  return StepOf(result);
}

nb::tuple EvalBatch(HostSession& session, const nb::dict& batch) {
  TensorMap feeds = FeedsOf(session, batch);
  EvalResult result = Unlocked([&] {
    return session.With([&](TrainingSession& s) { return s.Eval(feeds); });
  });
  nb::object loss = nb::none();
  if (result.has_loss) loss = nb::cast(result.loss);
  return nb::make_tuple(loss, ArraysOf(result.outputs), result.cause,
                        result.of_averages);
}

nb::tuple Gradients(HostSession& session, const nb::dict& batch,
                    bool input_gradients) {
  session.RequireLoss();
  TensorMap feeds = FeedsOf(session, batch);
  GradientResult result = Unlocked([&] {
    return session.With([&](TrainingSession& s) {
      return s.Gradients(feeds, input_gradients);
    });
  });
  return nb::make_tuple(result.loss, ArraysOf(result.outputs),
                        ArraysOf(result.gradients),
                        ArraysOf(result.input_gradients), result.cause);
}

TensorMap Clones(TensorMap tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.Clone();
  return tensors;
}

nb::tuple State(HostSession& session, bool copy) {
  SessionState state = Unlocked([&] {
    return session.With([&](TrainingSession& s) {
      SessionState held = s.State();
      if (copy) held.tensors = Clones(std::move(held.tensors));
      return held;
    });
  });
  return nb::make_tuple(state.step, state.notes, ArraysOf(state.tensors));
}

void LoadState(HostSession& session, int64_t step,
               const std::map<std::string, std::string>& notes,
               const nb::dict& arrays) {
  SessionState state = {step, notes, TensorsOf(arrays)};
  Unlocked(
      [&] { session.With([&](TrainingSession& s) { s.SetState(state); }); });
}

nb::dict Weights(HostSession& session, bool copy) {
  TensorMap weights = Unlocked([&] {
    return session.With([&](TrainingSession& s) {
      return copy ? Clones(s.ReadWeights()) : s.ReadWeights();
    });
  });
  return ArraysOf(weights);
}

void LoadWeights(HostSession& session, const nb::dict& arrays) {
  TensorMap weights = TensorsOf(arrays);
  Unlocked([&] {
    session.With([&](TrainingSession& s) { s.SetWeights(weights); });
  });
}

// The facts that an input and a parameter share.
template <typename Info>
nb::dict FactsOf(const Info& info) {
  nb::dict row;
  row["name"] = info.name;
  row["dtype"] = Name(info.dtype);
  row["shape"] = nb::tuple(nb::cast(info.shape));
  return row;
}

nb::list Inputs(const HostSession& session) {
  nb::list list;
  for (const InputInfo& input : session.inputs()) {
    nb::dict row = FactsOf(input);
    row["axis_names"] = nb::tuple(nb::cast(input.axis_names));
    row["is_label"] = input.is_label;
    list.append(row);
  }
  return list;
}

nb::list Parameters(HostSession& session) {
  nb::list list;
  auto infos = Ask(session, [](TrainingSession& s) { return s.Tensors(); });
  for (const ParameterInfo& info : infos) {
    nb::dict row = FactsOf(info);
    row["fqn"] = info.fqn;
    row["trained"] = info.trained;
    row["role"] = info.role;
    row["reason"] = InKeywords(info.reason);
    list.append(row);
  }
  return list;
}

nb::dict Scales(HostSession& session) {
  nb::dict scales;
  auto infos = Ask(session, [](TrainingSession& s) { return s.Scales(); });
  for (const ScaleInfo& info : infos) scales[info.key.c_str()] = info.scale;
  return scales;
}

// Gives notes of a command to a function of Python, with options as keywords.
CapturedOutput::Listener ToPython(const nb::object& function) {
  return [&function](const std::string& note) {
    nb::gil_scoped_acquire lock;
    function(InKeywords(note));
  };
}

// Gives a batch's outputs and labels to a function of Python.
void ShowOutputs(const nb::object& callback, const TensorMap& outputs,
                 const Tensor* label) {
  nb::gil_scoped_acquire lock;
  TensorMap own = Clones(outputs);  // the session goes on in their memory
  nb::object labels = nb::none();
  if (label) labels = ArrayOf(label->Clone());
  callback("outputs", nb::make_tuple(ArraysOf(own), labels));
}

// The numbers of that function about all that it was given.
std::map<std::string, double> MeasuresOf(const nb::object& callback) {
  nb::gil_scoped_acquire lock;
  return nb::cast<std::map<std::string, double>>(
      callback("measures", nb::none()));
}

// Calls Python at each event of a run, beside the notes of a log.
class PythonEvents : public TrainingLog {
 public:
  // `watches`: whether the callback wants the outputs of validations.
  PythonEvents(Progress& progress, const nb::object& callback, bool watches)
      : TrainingLog(progress), callback_(callback), watches_(watches) {}

  bool WatchesOutputs() const override { return watches_; }
  void OutputsDone(const TensorMap& outputs, const Tensor* label) override {
    ShowOutputs(callback_, outputs, label);
  }
  std::map<std::string, double> Measures() override {
    if (!watches_) return {};
    return MeasuresOf(callback_);
  }

  void Begun(const std::string& trains) override {
    nb::gil_scoped_acquire lock;
    nb::dict data;
    data["trains"] = InKeywords(trains);
    callback_("begun", data);
  }
  void StepDone(const StepEvent& event) override {
    TrainingLog::StepDone(event);
    nb::gil_scoped_acquire lock;
    nb::dict data = StepOf(event.result);
    data["total"] = event.total;
    data["lr"] = event.lr;
    data["per_second"] = event.per_second;
    data["unit"] = event.counts_tokens ? "tokens" : "samples";
    data["seconds_left"] = event.seconds_left;
    callback_("step", data);
  }
  void ValidationDone(int64_t step, int64_t total,
                      const Evaluation& evaluation) override {
    TrainingLog::ValidationDone(step, total, evaluation);
    nb::gil_scoped_acquire lock;
    nb::dict data = EvaluationOf(evaluation);
    data["step"] = step;
    data["total"] = total;
    data["remark"] = InKeywords(evaluation.remark);
    callback_("validation", data);
  }
  void CheckpointSaved(int64_t step) override {
    nb::gil_scoped_acquire lock;
    nb::dict data;
    data["step"] = step;
    callback_("checkpoint", data);
  }

 private:
  const nb::object& callback_;
  const bool watches_;
};

// Whether Ctrl-C was pressed. Python's exception waits for its raise.
class CtrlC {
 public:
  bool Pressed() {
    nb::gil_scoped_acquire lock;
    if (!error_ && PyErr_CheckSignals() != 0) {
      error_ = std::make_unique<nb::python_error>();
    }
    return error_ != nullptr;
  }
  void Raise() {
    if (error_) throw nb::python_error(*error_);
  }

 private:
  std::unique_ptr<nb::python_error> error_;
};

// What a method of Python returns for `which`, an index or indices, the names
// of the inputs, and the labels among them with the label that does not count.
// Its arrays are converted as a step's.
template <typename Which>
TensorMap Asked(const nb::object& source, const char* method,
                const Which& which, const std::vector<DatasetInput>& inputs) {
  nb::gil_scoped_acquire lock;
  std::vector<std::string> names;
  nb::dict labels;
  for (const DatasetInput& input : inputs) {
    names.push_back(input.name);
    nb::object ignored = nb::none();
    if (input.ignored) ignored = nb::cast(*input.ignored);
    if (input.is_label) labels[input.name.c_str()] = ignored;
  }
  TensorMap feeds =
      TensorsOf(nb::cast<nb::dict>(source.attr(method)(which, names, labels)));
  for (const DatasetInput& input : inputs) {
    auto given = feeds.find(input.name);
    if (given == feeds.end()) continue;
    given->second =
        FeedAs(given->second, input.FedAs(given->second), input.name);
  }
  return feeds;
}

// A dict of arrays, or an object with a method `batch` or `rows`; None:
// neither. `given` must outlive the result, which may be copied without
// Python's lock.
HostData HostDataOf(const nb::object& given) {
  if (given.is_none()) return {};
  if (nb::isinstance<nb::dict>(given)) {
    return {.arrays = TensorsOf(nb::cast<nb::dict>(given))};
  }
  if (nb::hasattr(given, "rows")) {
    auto rows = [&given](const std::vector<int64_t>& samples,
                         const std::vector<DatasetInput>& inputs) {
      return Asked(given, "rows", samples, inputs);
    };
    return {.rows = RowSource{rows, nb::cast<int64_t>(given.attr("samples"))}};
  }
  auto batch = [&given](int64_t index,
                        const std::vector<DatasetInput>& inputs) {
    return Asked(given, "batch", index, inputs);
  };
  return {.source =
              BatchSource{batch, nb::cast<int64_t>(given.attr("length"))}};
}

// Returns the summary as JSON, or "" if this is not the first rank.
std::string TrainWith(const nb::dict& options, const nb::object& callback,
                      const nb::object& note, bool watches,
                      const nb::object& data, const nb::object& val_data) {
  CtrlC interrupt;
  const Arguments arguments = ArgumentsOf(options);
  HostData arrays = HostDataOf(data), val_arrays = HostDataOf(val_data);
  std::string text = Unlocked([&] {
    CapturedOutput output(ToPython(note));
    Progress unseen;
    PythonEvents events(unseen, callback, watches);
    Train(arguments, {events, [&] { return interrupt.Pressed(); }, OpenRanks,
                      arrays, val_arrays});
    return output.text();
  });
  interrupt.Raise();
  return text;
}

using Command = int (*)(const Arguments&);

constexpr std::pair<const char*, Command> kCommands[] = {
    {"calibrate", Calibrate},
    {"compare", Compare},
    {"eval", Eval},
    {"export", Export},
    {"inspect", Inspect},
    {"recipes", Recipes},
    {"report", Report},
    {"rewrite", Rewrite},
    {"sensitivity", SensitivityCommand},
    {"version", Version},
};

// Commands that catch signals are the only ones in their process, elsewhere.
class KeptSignals {
 public:
  KeptSignals() {
    ForgetInterrupts();
    for (size_t i = 0; i < 3; ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeptSignals() {
    for (size_t i = 0; i < 3; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGPIPE};
  struct sigaction before_[3];
};

// Returns the text that the command prints.
std::string RunCommand(const std::string& name, const nb::dict& options,
                       const nb::object& note) {
  const Arguments arguments = ArgumentsOf(options);
  for (const auto& [known, run] : kCommands) {
    if (name != known) continue;
    return Unlocked([&, run = run] {
      KeptSignals signals;
      CapturedOutput output(ToPython(note));
      if (run(arguments) == kInterrupted) throw Interruption("interrupted");
      return output.text();
    });
  }
  throw OptionError("there is no command " + name);
}

// The command `eval`, beside which `callback`, unless it is None, gets the
// outputs.
std::string EvaluateWith(const nb::dict& options, const nb::object& callback,
                         const nb::object& note, const nb::object& data) {
  const Arguments arguments = ArgumentsOf(options);
  EvalHost host = {.data = HostDataOf(data)};
  if (!callback.is_none()) {
    host.outputs = [&](const TensorMap& outputs, const Tensor* label) {
      ShowOutputs(callback, outputs, label);
    };
    host.measures = [&] { return MeasuresOf(callback); };
  }
  return Unlocked([&] {
    KeptSignals signals;
    CapturedOutput output(ToPython(note));
    if (EvalWatched(arguments, host) == kInterrupted) {
      throw Interruption("interrupted");
    }
    return output.text();
  });
}

// The options of a command or of the session, for its docstring.
std::string Describe(const std::string& name) {
  if (name == "TrainingSession") return InKeywords(SessionKeywords());
  CapturedOutput output([](const std::string&) {});
  const Arguments help = {.values = {{"help", true}}};
  if (name == "train") Train(help);
  for (const auto& [known, run] : kCommands) {
    if (name == known) run(help);
  }
  return InKeywords(output.text());
}

// The program `onnx-fp8`, as a script of the package.
int RunProgram(const std::string& name,
               const std::vector<std::string>& arguments) {
  // It stands in messages with commands to type.
  static const std::string kept = name;
  program_invocation_name = const_cast<char*>(kept.c_str());
  return Unlocked([&] { return Main(arguments); });
}

void ExportModelFile(HostSession& session, const std::string& path,
                     bool external_data) {
  session.With([&](TrainingSession& s) { s.ExportOnnx(path, external_data); });
}

std::vector<std::string> ExportWeightFile(HostSession& session,
                                          const std::string& path) {
  return session.With(
      [&](TrainingSession& s) { return s.ExportSafetensors(path); });
}

void ExportAdapterFolder(HostSession& session, const std::string& folder) {
  session.With([&](TrainingSession& s) { s.ExportAdapter(folder); });
}

std::vector<std::string> ExportServedFiles(HostSession& session,
                                           const std::string& path,
                                           const std::string& format,
                                           const std::string& like,
                                           bool external_data) {
  const ServedFiles files =
      ServedFilesOf(format, "path", path, like, external_data);
  std::vector<std::string> remarks =
      session.With([&](TrainingSession& s) { return s.ExportServed(files); });
  for (std::string& remark : remarks) remark = InKeywords(remark);
  return remarks;
}

void Raise(const char* type, const std::exception& error) {
  nb::object types = nb::module_::import_("onnx_fp8._errors");
  nb::object raised = types.attr(type);
  PyErr_SetString(raised.ptr(), Printable(InKeywords(error.what())).c_str());
}

void Translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const OptionError& error) {
    Raise("OptionError", error);
  } catch (const Interruption& error) {
    PyErr_SetString(PyExc_KeyboardInterrupt, Printable(error.what()).c_str());
  } catch (const Error& error) {
    Raise("Error", error);
  }
}

std::vector<std::string> NotesOf(HostSession& session) {
  std::vector<std::string> notes =
      Ask(session, [](TrainingSession& s) { return s.Notes(); });
  for (std::string& note : notes) note = Printable(InKeywords(note));
  return notes;
}

}  // namespace

// A host keeps its own `new`, which does not tell the size.
size_t BytesOfFailedNew() { return 0; }

}  // namespace onnx_fp8

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  using namespace nb::literals;
  using namespace onnx_fp8;
  nb::set_leak_warnings(false);
  nb::register_exception_translator(Translate);
  module.attr("__version__") = ONNX_FP8_VERSION;
  nb::class_<HostSession>(module, "Session")
      .def(
          "__init__",
          [](HostSession* session, const nb::dict& options) {
            const Arguments arguments = ArgumentsOf(options);
            Unlocked([&] { return new (session) HostSession(arguments); });
          },
          "options"_a)
      .def("step", Step, "batches"_a, "lr"_a = nb::none(), "alone"_a = false)
      .def("eval", EvalBatch, "batch"_a)
      .def("gradients", Gradients, "batch"_a, "input_gradients"_a)
      .def("state", State, "copy"_a)
      .def("load_state", LoadState, "step"_a, "notes"_a, "arrays"_a)
      .def("weights", Weights, "copy"_a)
      .def("load_weights", LoadWeights, "arrays"_a)
      .def(
          "save",
          [](HostSession& session, const std::string& folder) {
            session.With([&](TrainingSession& s) { s.Save(folder); });
          },
          "folder"_a, WithoutLock())
      .def(
          "restore",
          [](HostSession& session, const std::string& folder) {
            session.With([&](TrainingSession& s) { s.Restore(folder); });
          },
          "folder"_a, WithoutLock())
      .def("export_onnx", ExportModelFile, "path"_a, "external_data"_a,
           WithoutLock())
      .def("export_safetensors", ExportWeightFile, "path"_a, WithoutLock())
      .def("export_served", ExportServedFiles, "path"_a, "format"_a, "like"_a,
           "external_data"_a, WithoutLock())
      .def("export_adapter", ExportAdapterFolder, "folder"_a, WithoutLock())
      .def_prop_ro("step_count",
                   [](HostSession& session) {
                     return Ask(session,
                                [](TrainingSession& s) { return s.step(); });
                   })
      .def_prop_ro("skipped_steps",
                   [](HostSession& session) {
                     return Ask(session, [](TrainingSession& s) {
                       return s.skipped_steps();
                     });
                   })
      .def_prop_ro("notes", NotesOf)
      .def_prop_ro("inputs", Inputs)
      .def_prop_ro("parameters", Parameters)
      .def_prop_ro("scales", Scales);
  module.def("evaluate", EvaluateWith, "options"_a, "callback"_a.none(),
             "note"_a, "data"_a = nb::none());
  module.def("train", TrainWith, "options"_a, "callback"_a, "note"_a,
             "watches"_a, "data"_a = nb::none(), "val_data"_a = nb::none());
  module.def("run_command", RunCommand, "name"_a, "options"_a, "note"_a);
  module.def("describe", Describe, "name"_a);
  module.def("run_program", RunProgram, "name"_a, "arguments"_a);
  module.def("close_ranks", CloseRanks, WithoutLock());
  module.def("abort_ranks", AbortRanks, "reason"_a, WithoutLock());
}
