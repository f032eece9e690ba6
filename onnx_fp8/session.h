// SPDX-License-Identifier: Apache-2.0
//
// Train an exported ONNX model:
//
//   SessionOptions options;
//   options.model = "model.onnx";
//   options.loss.kind = "cross_entropy";
//   options.recipe = ParseRecipe("tensorwise");
//   auto session = TrainingSession::Create(options);
//   for (…) StepResult r = session->Step({{"x", x}, {"labels", y}}, lr);
//   session->Save("run");
//   session->ExportOnnx("trained.onnx");
//
// samples/cpp/train_digits.cc is the whole program.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "onnx_fp8/batch_norm_mode.h"
#include "onnx_fp8/budgets.h"
#include "onnx_fp8/cast_statistics.h"
#include "onnx_fp8/dumped_tensor.h"
#include "onnx_fp8/gemm_filter.h"
#include "onnx_fp8/loss_scaling.h"
#include "onnx_fp8/memory_report.h"
#include "onnx_fp8/optimizer_spec.h"
#include "onnx_fp8/profile_report.h"
#include "onnx_fp8/provider_options.h"
#include "onnx_fp8/recipe_text.h"
#include "onnx_fp8/sharding.h"
#include "onnx_fp8/tensor.h"
#include "onnx_fp8/timeline_report.h"

namespace onnx_fp8 {

class NodeObserver;

// The loss of a session, docs/losses.md.
struct LossSpec {
  // The name of a row of the table in training/step/loss.cc; or "output:NAME":
  // the graph computes the loss; or the path of a model from outputs and labels
  // to the loss, FILE.onnx. "": no loss (Step is not possible).
  std::string kind;
  std::string label = "labels";  // name of the label array and graph input
  std::string logits;            // output that the loss reads; "": the first
  // Options of some losses; without a value PyTorch's defaults hold.
  // The axis of the logits along which the classes lie, negative from the end.
  std::optional<int64_t> class_axis = {};
  std::optional<int64_t> ignore_index = {};    // labels that do not count
  std::optional<double> label_smoothing = {};  // 0 … 1
  std::vector<float> class_weights = {};  // one for each class; none: all 1
  std::optional<double> delta = {};       // where huber becomes linear
};

struct SessionOptions {
  // Path of the .onnx file: a model, or a training step (StepFile), which
  // decides the options that made it; docs/formats.md.
  std::string model;
  // Options that the caller has set, even if to their defaults, by their names
  // in training/run/option_table.cc. A step that was made with other values is
  // then refused.
  std::set<std::string> given = {};
  bool model_only = false;  // refuses a training step
  // The provider that runs the steps: one of ProviderNames().
  std::string provider = "cpu";
  ProviderOptions provider_options = {};
  LossSpec loss;
  OptimizerSpec optimizer;
  // kFloat, or kBFloat16 or kFloat16: values that PyTorch's autocast keeps in
  // 16 bits are rounded to that dtype (docs/precision.md).
  DType dtype = DType::kFloat;
  Recipe recipe;
  GemmFilter filter;  // which linear layers it is for
  // For static scaling: a file of `onnx-fp8 calibrate`, or the folder of a run
  // with delayed scaling; "": the scales of the checkpoint that is restored.
  std::string scales;
  // Globs over FQNs and initializer names, see
  // graph/passes/trained_parameters.h.
  std::vector<std::string> train;
  std::vector<std::string> freeze;
  // Low-rank adapters beside linear layers, which are trained in place of the
  // model's parameters: "r=16,alpha=32,targets=*q_proj*,*v_proj*", or the
  // folder of an adapter; "": none. See onnx_fp8/lora_spec.h.
  std::string lora;
  // The input that tells the documents of a row apart, int32 (batch, sequence):
  // attention keeps to one document. It is added if the model has no such
  // input. "": a row is one document.
  std::string segment_ids;
  BatchNormMode batch_norm = BatchNormMode::kAsExported;
  LossScaling loss_scaling = {};  // with dtype kFloat16
  // Whether a table and a layer's weight that hold the same matrix become one
  // tensor. `ties`: pairs "A=B" of names that do; see
  // graph/passes/tied_weights.h.
  bool tie_copies = true;
  std::vector<std::string> ties;
  // Initial values by FQN or initializer name, a whole state_dict too; "": the
  // model's own. A .safetensors file, or the folder or index of several ones;
  // FP8 codes with scales are decoded. See training/step/given_weights.h.
  std::string weights;
  // "OLD=NEW", with * in both: renames those values; see
  // training/step/rename_weights.h.
  std::vector<std::string> rename;
  // "normal:STD" draws weights whose data files are missing, and for which
  // `weights` has no values, by `seed`; see training/step/draw_weights.h.
  // Another text means the same as `weights`.
  std::string init;
  // Data files of weights may be missing: the caller restores a checkpoint.
  bool lacks_weights = false;
  // Logits of more bytes than these are computed in chunks of rows of about
  // this size, together with the loss and their gradients; 0: never; -1: above
  // 16 MiB on a CPU, so that they stay in its cache, and 1 GiB on a GPU, which
  // small products leave idle. See graph/passes/chunk_loss.h.
  int64_t loss_chunk_bytes = -1;
  // What the backward computes again instead of keeping it: "blocks", the
  // layers that repeat; "auto", the cheapest values that make the step fit into
  // `memory`; or globs over modules. "none": nothing; empty: the same, but
  // "auto" with `memory`. See graph/passes/recompute.h, recompute_auto.h.
  std::vector<std::string> recompute = {};
  // "fp8": the FP8 copies of weights that products read live from step to step,
  // as codes and scales. A step begins with them and ends by making the next
  // ones; no result changes. "float": each step makes them of the weights. See
  // graph/fp8/primary_weights.h.
  std::string primary_weights = "float";
  // How frozen matrices live: as "float32"s; as "bfloat16"s; or, if products
  // read them in FP8, as "fp8" codes and scales alone. See
  // training/state/frozen_weights.h.
  std::string frozen = "float32";
  // The memory that the program may use on its device, or in its process:
  // "74GiB", a number of bytes, or "auto", which is all that there is. A batch
  // whose plan needs more is refused. "": no limit, but "auto" with `recompute`
  // auto. See training/step/step_limit.h.
  std::string memory;
  // On the CPU: large tensors of the state lie in files of this folder, so that
  // the state may be larger than the machine's memory; "": in memory. See
  // base/file_memory.h.
  std::string state_dir;
  // "optimizer": a GPU's moments lie in the host's memory, and updates read and
  // write them there; "none".
  std::string offload = "none";
  // What evaluation and exports of a model read: the "weights", or "ema", their
  // averages (optimizer.ema). Before an update has moved these, evaluation
  // reads the weights. See training/state/averages.h.
  std::string eval_with = "weights";
  // The numbers of an evaluation beside the loss: "accuracy", "perplexity";
  // empty: the accuracy, or where each token has a label the perplexity alone.
  std::vector<std::string> metrics = {};
  // For a session on several ranks.
  ShardSpec shard = {};
  // Most bytes of gradients, or of the gathered weights of a layer that
  // repeats, that travel together, in one call; 0: each tensor alone; -1:
  // gradients of 25 MiB, or of 2 MiB for each rank of a ring if that is more,
  // and whole layers. See training/ranks/bucket_reductions.h, gather_ahead.h.
  int64_t bucket_bytes = -1;
  // Whether ranks go on with a step while they send and receive, and while a
  // GPU updates moments in the host's memory.
  bool overlap = true;
  // Micro-batches per optimizer step.
  int64_t grad_accum = 1;
  // Loss and gradients of a step: the means over its micro-batches of their
  // own means, "batches"; or means over all labels of the step that count,
  // "tokens", as of one large batch. The latter needs a loss of the table, and
  // no static scales.
  std::string grad_accum_by = "batches";
  // "every=100,layers=GLOB,GLOB": each 100th step measures its casts to FP8
  // (StepResult::casts), of these layers or of all; "": none does. No result
  // changes. See onnx_fp8/stats_spec.h.
  std::string stats;
  // Steps `at_steps` keep tensors of the products of the layers `dump`, globs
  // over names (StepResult::dumps): of the operands `what`, or of all if it is
  // empty. No result changes. See onnx_fp8/dump_spec.h.
  std::vector<std::string> dump, at_steps, what;
  uint64_t seed = 0;
  // Called before the memory of a plan is allocated, as a rule after the model
  // was read and a graph was built; empty: nothing is called.
  std::function<void()> before_plan = {};
  bool profile_steps = false;  // for ReportProfile
  // Path of a Chrome trace of the GPU's work in `timeline_steps` steps, which
  // begin with the session's third step; "": no trace. The steps run as they do
  // without it. Before the first and after the last of them, Start waits for
  // the device and reports errors of earlier steps. A provider that the caller
  // makes needs provider_options.timeline. A profile beside it is an error.
  std::string timeline;
  int64_t timeline_steps = 3;
  // true: an op without a kernel is an error, and one message lists all such
  // ops. false: the op's body in ONNX ops runs, which is many times slower.
  bool strict = false;

#define ONNX_FP8_PATH(name, help) std::string name;
#define ONNX_FP8_LIST(name, help) std::vector<std::string> name;
#define ONNX_FP8_INT(name, preset, least, help) int64_t name = preset;
#include "onnx_fp8/session_options.inc"

  // Names of passes that the session leaves out. PassesToSkip() of
  // training/step/pipelines.h lists the passes that allow it.
  std::vector<std::string> skip_passes;
  // How much the model may ask for before a step runs; each for one plan.
  Budgets budgets = {};
};

// A scale that is kept from step to step.
struct ScaleInfo {
  std::string key;      // "blocks.0.fc.weight/forward/input/float8e4m3fn#0"
  float scale = 0;      // real = scale · 8-bit value; 0: not known yet
  bool delayed = true;  // false: static
};

struct StepResult {
  int64_t step = 0;  // counts from 1
  float loss = 0;    // before the update; mean by grad_accum_by
  // Global, before clipping; -1: not known, in a step of another program.
  float grad_norm = 0;
  float loss_scale = 0;  // float16: this step's; 0: none
  // The largest |update| of a weight in units of its learning rate, without
  // decoupled weight decay: |m̂ / (sqrt(v̂) + eps)|, by the moments before they
  // are rounded. About 1; Inf: an update is NaN. 0: the step is skipped. -1:
  // not measured, because moments are float32 or the optimizer keeps no mean of
  // squares.
  float update_amax = -1;
  bool skipped = false;  // a gradient or amax was not finite: nothing changed
  // Why the step was skipped, for people: the first tensor that was not finite.
  std::string cause;
  // What happened to a checkpoint's scales under another recipe; said once.
  std::string remark;
  // Statistics of the step's casts to FP8, joined over micro-batches and ranks.
  // Empty: `stats` does not measure this step.
  std::vector<MeasuredCast> casts = {};
  // Tensors of the products of each micro-batch. Empty: `dump` keeps none of
  // this step.
  std::vector<Dump> dumps = {};
};

struct EvalResult {
  float loss = 0;  // 0 without a loss; NaN if an FP8 product has lost an Inf
  bool has_loss = false;
  TensorMap outputs;
  // The first tensor that is not finite, for people; "": none. FP8 can't hold
  // it, so outputs may look finite. A step with it would be skipped.
  std::string cause;
  // Whether the numbers are of the averages of weights (eval_with).
  bool of_averages = false;
  std::vector<MeasuredCast> casts = {};  // of the forward, if asked for
};

struct GradientResult {
  float loss = 0;     // as EvalResult's
  std::string cause;  // as EvalResult's
  TensorMap outputs;
  TensorMap gradients;                   // by initializer name, fp32, its shape
  TensorMap input_gradients;             // by graph input, if asked for
  std::vector<MeasuredCast> casts = {};  // if asked for
};

// One input of the model, or its label.
struct InputInfo {
  std::string name;
  DType dtype;
  Shape shape;                          // -1: dynamic
  std::vector<std::string> axis_names;  // "" where fixed; empty: all fixed
  bool is_label = false;
  // Its elements are rows of a weight with so many (an embedding's tokens).
  std::optional<int64_t> looked_up = {};
};

// Files for programs that serve a model (docs/formats.md).
enum class ServedFormat {
  kHuggingFaceFp8,  // a folder with FP8 codes and scales
  kBFloat16,        // the same with bfloat16 weights
  kOnnxFp8,         // the forward model with codes and scales
};

struct ServedFiles {
  ServedFormat format;
  std::string path;  // a new folder, or an .onnx file
  // A folder of Hugging Face, whose configuration and tokenizer a new folder
  // takes over; "": none.
  std::string like = {};
  bool external_data = false;  // of an .onnx file, as in ExportOnnx
};

struct ParameterInfo {
  std::string name;  // of the initializer
  std::string fqn;   // PyTorch's, if the file tells it; else the name
  DType dtype;
  Shape shape;
  bool trained = false;
  // What training does with it: "parameter", "frozen", "unused" (the loss does
  // not depend on it), "tied", "statistic", "constant", or another state.
  std::string role = {};
  std::string reason = {};  // why, for people
};

// Everything that a run needs to go on, as a checkpoint has it.
struct SessionState {
  int64_t step = 0;  // steps done
  // Text that belongs to the tensors: the recipe, the keys of the scales.
  std::map<std::string, std::string> notes;
  TensorMap tensors;  // parameters, moments, scales, counters, by name
};

struct MemoryInfo {
  size_t arena_bytes = 0;  // peak of activations and temporaries
  size_t naive_bytes = 0;  // the same without sharing
  size_t state_bytes = 0;  // parameters, moments, scales
  // The part of the state that lies in files (state_dir), or in the host's
  // memory (offload).
  size_t outside_bytes = 0;
};

// A training run of one model on one provider. Not thread-safe.
class TrainingSession {
 public:
  // Reads the model and finds its parameters. Errors: a malformed model, a loss
  // that does not fit, patterns that match nothing; here and when a plan is
  // made for new shapes, a budget that is used up.
  static std::unique_ptr<TrainingSession> Create(const SessionOptions& options);
  virtual ~TrainingSession() = default;

  // One optimizer step on `grad_accum` micro-batches of feeds, or on less if
  // TakesSmallerGroups: every graph
  // input and the label, each of its dtype, shapes free where the model's axes
  // are dynamic. `lr` is this step's learning rate. Errors: feeds that do not
  // fit; state is then unchanged.
  StepResult Step(const std::vector<TensorMap>& micro_batches, double lr) {
    Start(micro_batches, lr);
    return Finish();
  }
  StepResult Step(const TensorMap& feeds, double lr) {
    return Step(std::vector<TensorMap>{feeds}, lr);
  }

  // Plans a step on these batches, as Step would, and runs nothing. The memory
  // of its plan is taken by the first Step. Returns the remarks that its result
  // would have, such as what it needs of a GPU's memory. Errors: feeds that do
  // not fit; a GPU without room for the step.
  virtual std::string Prepare(const std::vector<TensorMap>& micro_batches) = 0;
  // The same for Eval. The next step has its remarks.
  virtual void PrepareEval(const TensorMap& feeds) = 0;

  // The two halves of Step, for a caller with other work to do while a device
  // computes. Start begins a step; more steps may begin before the first is
  // finished. Finish waits for the oldest step and returns its result. Errors
  // of Start: Step's; nothing was started. Errors of Finish: a device found
  // them after Start had returned; the state must then be restored.
  virtual void Start(const std::vector<TensorMap>& micro_batches,
                     double lr) = 0;
  virtual StepResult Finish() = 0;

  // Forward only; state is not changed. The label is needed for the loss alone:
  // without it there is none. `measures`: the result has statistics of the
  // casts to FP8 of the layers of `stats`. Errors then: options without
  // `stats`; several ranks.
  virtual EvalResult Eval(const TensorMap& feeds, bool measures = false) = 0;

  // Loss, outputs and the gradient of every trained parameter for one batch, in
  // training mode but without Dropout: the numbers can be compared. `measures`:
  // as Eval's.
  virtual GradientResult Gradients(const TensorMap& feeds, bool input_gradients,
                                   bool measures = false) = 0;

  // Whether a step may take less than `grad_accum` micro-batches.
  virtual bool TakesSmallerGroups() const = 0;
  // Number of optimizer steps started, including skipped ones.
  virtual int64_t step() const = 0;
  virtual int64_t skipped_steps() = 0;
  virtual std::vector<InputInfo> Inputs() const = 0;
  // The loss of the options, with the name of the output that it reads.
  virtual LossSpec Loss() const = 0;
  // The options; a step in a file overrides the ones that it decides.
  virtual const SessionOptions& Options() const = 0;
  // Parameters, trained or frozen.
  virtual std::vector<ParameterInfo> Parameters() const = 0;
  // The same and all other tensors of the file, such as statistics and
  // constants; single numbers in Constant nodes are left out.
  virtual std::vector<ParameterInfo> Tensors() const = 0;
  // One line: how many parameters are trained, who says so, and what is not.
  virtual std::string Trains() const = 0;
  // Facts that the user should know about how this model trains.
  virtual std::vector<std::string> Notes() const = 0;
  virtual MemoryInfo Memory() const = 0;
  // Delayed and static scales; empty before the first Step or Restore.
  virtual std::vector<ScaleInfo> Scales() const = 0;
  // Needs options.profile or profile_steps; empty before the first Step.
  virtual ProfileReport ReportProfile() const = 0;
  // Ends the timeline of options.timeline and returns its report. Errors: steps
  // in flight failed.
  virtual TimelineReport ReportTimeline() = 0;
  // Seconds since the session began, on several ranks.
  virtual TransferTimes Transfers() const = 0;
  // Memory of the plan with the largest arena. Errors: no plan is made yet.
  virtual MemoryReport ReportMemory() const = 0;

  // Writes a checkpoint into `folder` (docs/formats.md), with the caller's
  // `notes`. `before_rename` runs when the checkpoint is on disk but not yet
  // the newest one. The newest `keep` checkpoints stay, this one included;
  // older ones are removed when it is the newest. Errors: the disk; the last
  // good checkpoint stays.
  virtual void Save(const std::string& folder,
                    const std::map<std::string, std::string>& notes = {},
                    const std::function<void()>& before_rename = {},
                    int64_t keep = 2) = 0;
  // Restores the newest checkpoint and returns its notes. Errors: there is
  // none, or it is damaged or of another model or optimizer; the session is
  // unchanged.
  virtual std::map<std::string, std::string> Restore(
      const std::string& folder) = 0;

  // The state on the host. On the CPU the tensors share the session's memory,
  // which the next step changes. Errors: ranks divide the state.
  virtual SessionState State() = 0;
  // Copies `state`, which a session of the same model returned.
  // Errors: a tensor of the model that is missing or of another type; notes
  // that are damaged; the session is unchanged.
  virtual void SetState(const SessionState& state) = 0;
  // The model's tensors among the state, by name of the initializer. Memory and
  // errors: as State. Weights that the state keeps otherwise (`master`) become
  // floats with memory of their own.
  virtual TensorMap ReadWeights() = 0;
  // Replaces some or all weights by copies of these. The averages of replaced
  // weights (optimizer.ema) begin anew; moments stay. Errors: another name,
  // dtype or shape; ranks divide the state; the session is unchanged.
  virtual void SetWeights(const TensorMap& weights) = 0;

  // The file of the session with its present weights, in evaluation mode:
  // BatchNormalization normalizes by its running statistics, Dropout drops
  // nothing. A training step stays one, with all of its state. They lie in
  // PATH.data if `external_data` says so or the model would exceed Protobuf's 2
  // GiB. `into`: the model that the step was made from; it is written with the
  // step's weights. Errors: `into` for a session that has the model itself; a
  // model without these weights.
  virtual void ExportOnnx(const std::string& path, bool external_data = false,
                          const std::string& into = "") = 0;
  // The adapters of `lora`, and the parameters that are trained beside them, in
  // PEFT's format: adapter_model.safetensors and adapter_config.json. Exports
  // of the other formats merge them into the weights, in float32. Errors: a
  // session without `lora`.
  virtual void ExportAdapter(const std::string& folder) = 0;
  // The present weights by FQN in PyTorch's layout, and the running statistics
  // of BatchNormalization with the numbers of batches that moved them. Returns
  // remarks for the user about names or layouts that the file had lost.
  virtual std::vector<std::string> ExportSafetensors(
      const std::string& path) = 0;
  // The present weights for programs that serve the model. FP8 weights are the
  // codes and scales with which the next evaluation computes. Returns remarks
  // for the user: what else was decided. Errors: no layer runs in FP8; the
  // folder exists; ranks divide the state.
  virtual std::vector<std::string> ExportServed(const ServedFiles& files) = 0;

  // Watches the nodes of all steps that are started from now on, which have the
  // same results (providers/run/node_observer.h); null: nobody does. It must
  // outlive the steps.
  virtual void Watch(NodeObserver* observer) = 0;
};

}  // namespace onnx_fp8
