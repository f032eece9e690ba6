// SPDX-License-Identifier: Apache-2.0
//
// The options that commands, sessions, Python and ONNX Runtime share. An option
// that is one field of SessionOptions and nothing else has its row in
// onnx_fp8/session_options.inc.
#include "base/check.h"
#include "base/joined.h"
#include "onnx_fp8/recipe_text.h"
#include "optimizers/master_format.h"
#include "optimizers/optimizer.h"
#include "providers/report/roofline.h"
#include "training/make_provider.h"
#include "training/run/option.h"
#include "training/step/draw_weights.h"
#include "training/step/loss.h"

namespace onnx_fp8 {
namespace {

using enum OptionKind;
using O = SessionOptions;

std::string GpuNames() {
  std::vector<std::string> names;
  for (const GpuPeaks& peaks : KnownGpus()) names.emplace_back(peaks.name);
  return Barred(names);
}

std::string BudgetNames() {
  std::string all;
  for (const BudgetInfo& info : AllBudgets()) {
    all += Concat(all.empty() ? "" : "; ", info.name, " (", info.unit, "; ",
                  BudgetText(Budgets().*info.of), ")");
  }
  return all;
}

Option Row(const char* group, const char* name, OptionKind kind,
           const char* help, const char* preset = "",
           const OptionColumns& more = {}) {
  return {group, name, kind, help, preset, more};
}

const Option kOptions[] = {
    Row("Model", "MODEL", kFile, "the .onnx file", "", {.of_one_start = true}),
    Row("Samples", "batch_size", kInt,
        "samples per batch (default: the exported one, else 8)", "",
        {.min = 1}),
    Row("Samples", "whole", kList, "arrays that are fed whole: no sample axis"),
    Row("Samples", "seq_len", kInt, "token files: tokens per sample", "",
        {.min = 1}),
    Row("Samples", "eod", kInt,
        "token files: the token that ends a document; `segment_ids` then tells "
        "the documents of a row apart, the input position_ids begins anew in "
        "each, and the label behind it does not count",
        "", {.min = 0}),
    Row("Samples", "token_dtype", kChoice, "token files: type of a token",
        "uint16", {.choices = "uint16|uint32"}),
    Row("Files", "data", kFiles,
        ".npz, .npy, .safetensors (arrays named like the model's inputs) or "
        ".bin (tokens); a folder of token files; a quoted pattern, as "
        "'train-*.bin'"),
    Row("Files", "val_data", kFiles, "the same, for validation"),
    Row("Order", "data_weights", kList,
        "numbers, one for each item of `data`: how often its samples are "
        "drawn; an epoch has as many samples as all items together"),
    Row("Order", "no_shuffle", kSwitch, "keep the order of the file"),
    Row("Order", "shuffle_block", kInt,
        "samples that a shuffle keeps together: blocks of so many come in a "
        "random order, and the samples inside a block, too; 0: one block of "
        "all",
        "0", {.min = 0}),
    Row("Seed", "seed", kInt, "of the shuffle and of random nodes", "0",
        {.min = 0}),

    Row("Steps", "steps", kInt, "optimizer steps in all", "", {.min = 1}),
    Row("Steps", "epochs", kInt, "instead of `steps`", "", {.min = 1}),
    Row("Accumulation", "grad_accum", kInt, "batches per step", "1",
        {.min = 1, .max = 65536, .field = &O::grad_accum}),
    Row("Accumulation", "grad_accum_by", kChoice,
        "what a step's loss and gradients are means over: its batches, each "
        "with its own mean, or all labels of the step that count, as of one "
        "large batch (tokens)",
        "batches", {.choices = "batches|tokens", .field = &O::grad_accum_by}),
    Row("Saves", "save_every", kInt, "steps between checkpoints", "100",
        {.min = 1}),
    Row("Saves", "keep_last", kInt,
        "checkpoints that stay: when one is written, older ones than so many "
        "are removed; the best one of `save_best` is another",
        "2", {.min = 1}),
    Row("Saves", "val_batch_size", kInt,
        "samples per batch of a validation, whose last batch may be smaller "
        "(default: as many as in training)",
        "", {.min = 1}),
    Row("Saves", "val_every", kInt,
        "steps between validations (default: ends of epochs)", "", {.min = 1}),
    Row("Saves", "stats", kText,
        "every=N[,layers=GLOB,GLOB]: each Nth step or batch also measures its "
        "casts to FP8, of these layers or of all: shares of saturated and "
        "flushed numbers, the noise, amax, scale. `train()` writes them to "
        "OUT/statistics.jsonl, other commands print them",
        "", {.field = &O::stats}),
    Row("Dump", "dump", kList,
        "globs over names of layers: the steps `at_steps` write tensors of the "
        "products of these layers to OUT/dumps: before the cast to FP8, codes, "
        "scales, decoded; and the results. `compare()` finds where two runs "
        "part",
        "", {.field = &O::dump}),
    Row("Dump", "at_steps", kList, "steps that `dump` writes: 10,20", "",
        {.field = &O::at_steps}),
    Row("Dump", "what", kList,
        "which of input, weight, grad_output, output `dump` writes (default: "
        "all)",
        "", {.field = &O::what}),
    Row("Saves", "save_best", kChoice,
        "also keep the checkpoint with the best validation, in OUT/best "
        "(`eval()` and `export()` with `best`)",
        "", {.choices = "loss|accuracy"}),
    Row("Saves", "early_stop", kText,
        "N or N:MIN_DELTA: N validations in a row that are not better end the "
        "run; by the loss, or by the number of `save_best`"),
    Row("Saves", "on_nonfinite", kChoice,
        "a step whose loss or gradients are not finite changes nothing, and "
        "OUT/evidence.json keeps what `explain()` needs to find its cause. "
        "skip: the run goes on; stop: it ends with an error; explain: it ends, "
        "and tells the cause at once",
        "skip", {.choices = "skip|stop|explain"}),
    Row("Saves", "watch", kText,
        "spike=X: keep the evidence of a step, too, whose loss is more than X "
        "times the median of the last 32 losses"),
    Row("Saves", "tensorboard", kFile,
        "a folder that gets the numbers of all steps and validations, and what "
        "`stats` measures, as a file of TensorBoard",
        "", {.of_one_start = true, .of_one_rank = true}),
    Row("Schedule", "schedule", kText,
        "constant, linear or cosine, with warm-up steps: "
        "cosine:warmup=100,min=0.1; or wsd, which stays at the rate and decays "
        "in the last steps: wsd:warmup=100,decay=200,min=0.1",
        "constant"),

    Row("Ranks", "mesh", kText,
        "dp=N: N ranks, each with a GPU or some cores, share each batch; tp=T: "
        "T ranks divide the layers; replicate=R,dp=N: R groups hold the same "
        "state; together, as dp=2,tp=4 (default: one rank). mpirun -n N or "
        "torchrun starts the ranks",
        "", {.of_one_start = true}),
    Row("Ranks", "shard", kChoice,
        "state that they divide: none, optimizer (ZeRO-1), gradients (ZeRO-2) "
        "or parameters (ZeRO-3, FSDP)",
        "none",
        {.choices = "none|optimizer|gradients|parameters",
         .of_one_start = true}),
    Row("Ranks", "gather_dtype", kChoice,
        "widest format in which divided weights travel", "fp8",
        {.choices = "fp8|bfloat16|float32", .of_one_start = true}),
    Row("Ranks", "bucket_bytes", kInt,
        "gradients, and the gathered weights of a layer, travel together, with "
        "at most so many bytes in a call (default: gradients of 26214400, or "
        "of 2097152 for each rank if that is more, and whole layers)",
        "", {.min = 0, .field = &O::bucket_bytes, .of_one_start = true}),
    Row("Job", "job_secret", kFile,
        "the ranks of torchrun know each other by the secret in this file "
        "(default: the variable ONNX_FP8_JOB_SECRET, else a new one that rank "
        "0 leaves in `out` while the ranks meet)",
        "", {.of_one_start = true, .of_one_rank = true}),
    Row("Job", "insecure", kSwitch,
        "ranks of torchrun that have no secret trust whoever reaches their "
        "ports",
        "", {.of_one_start = true, .of_one_rank = true}),
    Row("Job", "no_overlap", kSwitch,
        "wait for each transfer and each offloaded update, instead of going on "
        "with the step",
        "", {.of_one_start = true}),

    Row("Optimizer", "optimizer", kText,
        "rule of the update: {}; FILE.onnx: a model from param, grad, lr, step "
        "and states to the next ones",
        "adamw", {.names = [] { return Joined(OptimizerNames()); }}),
    Row("Optimizer", "lr", kNumber, "learning rate", "0.001",
        {.min = 0, .max = std::numeric_limits<float>::max()}),
    Row("Optimizer", "weight_decay", kNumber,
        "decay of the weights (default: 0.01 for adamw, 0.1 for muon and what "
        "it leaves to adamw, else 0)",
        "", {.min = 0}),
    Row("Optimizer", "decay", kChoice,
        "the weights that `weight_decay` is for: all; layers, whose nodes are "
        "products, convolutions and recurrent layers, so that norms, biases "
        "and embeddings keep their size; or matrices, which have two axes or "
        "more; a weight_decay of `group` counts instead",
        "all", {.choices = "all|layers|matrices"}),
    Row("Optimizer", "betas", kList, "of Adam and AdamW", "0.9,0.999"),
    Row("Optimizer", "eps", kNumber, "of Adam and AdamW", "1e-8", {.min = 0}),
    Row("Optimizer", "momentum", kNumber,
        "of SGD and Muon (default: 0 for sgd, 0.95 for muon)", "", {.min = 0}),
    Row("Optimizer", "nesterov", kSwitch,
        "SGD with Nesterov's momentum, which Muon has"),
    Row("Optimizer", "muon_for", kList,
        "globs over the names of the matrices that muon updates, adamw all "
        "other parameters (default: matrices of hidden layers: no tables of "
        "embeddings and no last layer)"),
    Row("Optimizer", "no_nesterov", kSwitch,
        "Muon without Nesterov's momentum"),
    Row("Optimizer", "adjust_lr_fn", kChoice,
        "factor of the learning rate for a matrix of A by B: sqrt(max(1, A/B)) "
        "or, near the steps of adamw, 0.2*sqrt(max(A, B))",
        "original", {.names = [] { return Barred(RateAdjustments()); }}),
    Row("Optimizer", "ns_steps", kInt, "Newton-Schulz iterations of an update",
        "5", {.min = 0, .max = 99}),
    Row("Optimizer", "ns_coefficients", kList, "three numbers of an iteration",
        "3.4445,-4.775,2.0315"),
    Row("Optimizer", "clip_norm", kText,
        "clip gradients by their global norm; 0: never; X:previous: by the "
        "norm of the step before, as `release_gradients` needs it",
        "0"),
    Row("Optimizer", "moments", kChoice,
        "how the optimizer's moments are kept; bfloat16 and fp8 round the mean "
        "of squares stochastically",
        "float32", {.names = [] { return Barred(MomentFormats()); }}),
    Row("Optimizer", "master", kChoice,
        "how trained weights are kept: split8 in 3 bytes, bfloat16 in 2, "
        "rounded stochastically, split as a bfloat16 and the rest of the float",
        "float32", {.names = [] { return Barred(MasterFormats()); }}),
    Row("Optimizer", "ema", kText,
        "D or D,every=N: keep an exponential moving average of each trained "
        "weight, with the decay D, which every Nth update moves (`eval_with`); "
        "0: none",
        "0"),
    Row("Optimizer", "release_gradients", kSwitch,
        "update each weight as soon as its gradient is known, and free the "
        "gradient: elements whose gradient is not finite keep their values"),
    Row("Optimizer", "group", kWords,
        "PATTERN=weight_decay:X,lr_scale:X for some parameters; of several "
        "groups that fit one, the first counts"),

    Row("Loss", "loss", kText,
        "{}; means as PyTorch's, kl_div by batchmean; FILE.onnx: a model from "
        "outputs and labels, matched by name, to the loss",
        "", {.names = LossNames}),
    Row("Loss options", "label", kText, "name of the label array", "labels"),
    Row("Loss options", "logits", kText,
        "output that the loss reads (default: the first)"),
    Row("Loss options", "class_axis", kInt,
        "cross_entropy, nll: axis of the logits along which the classes lie, "
        "where the labels' shape does not tell: 1 for (N,C,H,W), -1 for "
        "(N,T,C)"),
    Row("Loss options", "ignore_index", kInt,
        "cross_entropy, nll: the label that does not count (default: -100)"),
    Row("Loss options", "class_weights", kList,
        "cross_entropy, nll: a number for each class, or a file with them: "
        ".npy, .npz or .safetensors"),
    Row("Loss options", "label_smoothing", kNumber,
        "cross_entropy: share of the labels that all classes get, 0 to 1 "
        "(default: 0)"),
    Row("Loss options", "delta", kNumber,
        "huber: distance at which squares become lines (default: 1)"),

    Row("Trained", "train", kList,
        "train these too (globs over parameter names); an error if one can't "
        "be trained",
        "", {.field = &O::train}),
    Row("Trained", "freeze", kList, "do not train these; `train` wins", "",
        {.field = &O::freeze}),
    Row("LoRA", "lora", kText,
        "train low-rank adapters beside linear layers, and nothing else: "
        "r=16,alpha=32,targets=GLOB,GLOB with dropout=0.05, "
        "init=true|gaussian|false and rslora if wanted; or the folder of an "
        "adapter that PEFT or `export()` wrote, to go on with it; `train` adds "
        "parameters that are trained whole",
        "", {.field = &O::lora}),
    Row("Reading", "batch_norm", kChoice,
        "BatchNormalization normalizes by the batch, by its running "
        "statistics, or as the file says",
        "as-exported", {.choices = "train|eval|as-exported"}),
    Row("Reading", "no_tie", kSwitch,
        "an embedding and a layer's weight that hold the same matrix, and "
        "tensors that the exporter wrote once, are two (default: one)"),
    Row("Reading", "tie", kWords, "A=B: these two hold the same and become one",
        "", {.field = &O::ties}),
    Row("Reading", "segment_ids", kText,
        "a row holds several documents: attention keeps to the one that this "
        "input of integers (batch, sequence) names; it is added if the model "
        "has none of this name",
        "", {.field = &O::segment_ids}),

    Row("Recipe", "recipe", kText,
        "how linear layers run in FP8: {}, with overrides as in "
        "rowwise,go:dyn_row_e5m2_p2, or a .json file; `recipes()` explains. "
        "`train()` also takes auto:sqnr=20, which measures the layers "
        "first",
        "off", {.names = RecipePresetNames}),
    Row("Recipe", "recipe_for", kWords,
        "PATTERN=RECIPE: another recipe for the layers that match; the first "
        "match counts"),
    Row("Recipe", "filter_fqns", kList,
        "layers whose name contains one of these stay in fp32"),
    Row("Recipe", "include", kList,
        "only layers that match one of these globs run in FP8"),
    Row("Recipe", "exclude", kList,
        "layers that match one of these globs stay in fp32"),
    Row("Recipe", "auto_filter", kText,
        "layers that FP8 makes slower stay in fp32: h100 (torchao's figures) "
        "or a file that `bench()` saved"),
    Row("Recipe", "scales", kFile,
        "static: file of scales, made by `calibrate()`, or folder of a run "
        "with delayed scaling"),
    Row("Recipe", "dtype", kChoice,
        "precision of activations, of their gradients and of the copies of "
        "weights that products read",
        "float32", {.choices = "float32|bfloat16|float16"}),
    Row("Loss scale", "loss_scale", kNumber,
        "float16: first factor of the loss", "65536", {.min = 0}),
    Row("Loss scale", "loss_scale_interval", kInt,
        "float16: finite steps before the factor doubles", "2000", {.min = 1}),

    Row("Provider", "provider", kChoice, "where the nodes run", "cpu",
        {.names = [] { return Barred(ProviderNames()); },
         .field = &O::provider}),
    Row("Provider", "tune", kSwitch,
        "cuda: time some algorithms of each product when it first runs, and "
        "keep the fastest for this and later runs with `tune`",
        "", {.of_one_start = true}),
    Row("Provider", "nondeterministic", kSwitch,
        "cuda: attention's gradients are sums in any order, which is faster",
        "", {.of_one_start = true}),
#define ONNX_FP8_PATH(name, help)       \
  Row("Engine", #name, kFile, help, "", \
      {.field = &O::name, .of_one_start = true, .of_one_rank = true}),
#define ONNX_FP8_LIST(name, help) \
  Row("Engine", #name, kList, help, "", {.field = &O::name}),
#define ONNX_FP8_INT(name, preset, least, help) \
  Row("Engine", #name, kInt, help, #preset, {.min = least, .field = &O::name}),
#include "onnx_fp8/session_options.inc"
    Row("Chunk", "loss_chunk", kInt,
        "bytes of logits that are in memory at a time: the last layer and the "
        "cross entropy run chunk by chunk (default: 16777216, on a GPU "
        "1073741824; 0: all at once)",
        "", {.min = 0, .field = &O::loss_chunk_bytes}),
    Row("Chunk", "recompute", kList,
        "what the backward computes again instead of keeping it: blocks (the "
        "layers that repeat), auto (what makes a step fit into `memory`, at "
        "the least cost), globs over modules, or none (default: auto with "
        "`memory`, else none)",
        "", {.field = &O::recompute}),
    Row("Chunk", "primary_weights", kChoice,
        "how weights that products read in FP8 live from step to step: as "
        "floats, of which each step makes codes, or as codes and scales too, "
        "which the step before has made",
        "float", {.choices = "float|fp8", .field = &O::primary_weights}),
    Row("Chunk", "frozen", kChoice,
        "how matrices that are not trained live: as floats, rounded to "
        "bfloat16, or, where products read them in FP8, as codes and scales "
        "alone (fp8: the others are bfloat16 with `dtype=bfloat16`, else "
        "float32)",
        "float32", {.choices = "float32|bfloat16|fp8", .field = &O::frozen}),
    Row("Chunk", "memory", kText,
        "memory that the program may use, on a GPU or in its process: 74GiB, "
        "80GB, a number of bytes, or auto (all that there is); a step that "
        "needs more is refused (default: no limit, but auto with "
        "`recompute=auto`)",
        "", {.field = &O::memory}),
    Row("Chunk", "state_dir", kFile,
        "cpu: a folder; tensors of the state of 64 KiB or more lie in files "
        "there, which need not fit into memory and go with the process",
        "",
        {.field = &O::state_dir, .of_one_start = true, .of_one_rank = true}),
    Row("Chunk", "offload", kChoice,
        "cuda: optimizer keeps the moments in the host's memory, where updates "
        "read and write them",
        "none",
        {.choices = "none|optimizer",
         .field = &O::offload,
         .of_one_start = true}),
    Row("Budget", "budget", kList,
        "NAME=N[k|M|G]: how much a file may ask for before a step runs: {}", "",
        {.names = BudgetNames, .of_one_start = true}),
    Row("Machine", "threads", kInt,
        "threads (default: the CPUs that the affinity mask and cgroup quotas "
        "leave)",
        "", {.min = 1, .max = 1024}),
    Row("Machine", "isa", kChoice,
        "instruction set; auto: the best one of this machine", "auto",
        {.names = [] { return Barred(CpuIsaNames()); }}),
    Row("Machine", "accumulate", kChoice,
        "sums of FP8 products: float32, or as a Hopper GPU rounds them, which "
        "is slow",
        "float32", {.choices = "float32|hopper"}),

    Row("Weights", "weights", kFile,
        "start from these weights: .safetensors (a whole state_dict too), or "
        "the folder or index of several; FP8 codes with scales are decoded. "
        "Data files of the model may be missing",
        "", {.field = &O::weights}),
    Row("Weights", "rename", kWords,
        "OLD=NEW, as in model.*=*: names of these weights; the first match "
        "counts",
        "", {.field = &O::rename}),
    Row("Weights", "init", kFile,
        "normal:STD draws weights whose data files are missing and that "
        "`weights` lacks, by `seed`; a path means the same as `weights`",
        "", {.field = &O::init, .scheme = kDrawnInit}),
    Row("Start", "ort_training", kFile,
        "instead of MODEL: a folder of onnxruntime.training.artifacts, with "
        "its loss, optimizer, weights and moments",
        "", {.of_one_start = true, .replaces_model = true}),
    Row("Start", "checkpoint", kFile,
        "of artifacts: a checkpoint in place of the folder's", "",
        {.of_one_start = true}),
    Row("Run", "out", kFile, "folder of the run", "", {.of_one_start = true}),
    Row("Run", "resume", kSwitch,
        "continue the run in `out` with its own options; an option that is "
        "given here too replaces the run's, '' empties a list",
        "", {.of_one_start = true, .replaces_model = true}),
    Row("JSON", "json", kSwitch, "print one JSON object", "",
        {.of_one_start = true}),
    Row("Memory", "memory_report", kSwitch,
        "print the values in memory when a step needs most of it", "",
        {.of_one_start = true}),
    Row("Profile", "profile_summary", kSwitch,
        "print where a step's time goes, and how near its nodes come to what "
        "the machine can do",
        "", {.field = &O::profile_steps, .of_one_start = true}),
    Row("Timeline", "timeline", kFile,
        "cuda: write a Chrome trace of what the GPU does in some steps, and "
        "print its time by role; kernels run as they do without it",
        "", {.field = &O::timeline, .of_one_start = true, .of_one_rank = true}),
    Row("Timeline", "timeline_steps", kInt,
        "steps of `timeline`, from the third one", "3",
        {.min = 1, .field = &O::timeline_steps, .of_one_start = true}),

    Row("Output", "out", kFile, "the file to write", "", {.letter = "o"}),
    Row("External", "external_data", kSwitch,
        "write weights beside the model, to OUT.onnx.data, as is done anyway "
        "beyond 2 GiB"),
    Row("Evaluation", "metrics", kList,
        "numbers of validations and `eval()` beside the loss: accuracy, "
        "perplexity (default: the accuracy, or of tokens the perplexity)",
        "", {.field = &O::metrics}),
    Row("Evaluation", "eval_with", kChoice,
        "of a run with `ema`: what validations and `eval()` read, the weights "
        "or their averages",
        "weights", {.choices = "weights|ema", .field = &O::eval_with}),
    Row("Best", "best", kSwitch,
        "of a run with `save_best`: the best checkpoint, in place of the "
        "newest"),
    Row("Scores", "outputs", kList,
        "of artifacts: the values that the model computes (default: the scores "
        "that the loss reads)"),
    Row("Shapes", "shape", kList, "AXIS=N: sizes of dynamic axes"),
    Row("Shapes", "value", kList,
        "INPUT=N: values of inputs of one integer or bool, where they decide a "
        "branch or a size"),
    Row("GPU", "gpu", kChoice,
        "the GPU whose least time for a step is told, by the operations and "
        "bytes of each node; needs sizes of all axes",
        "", {.names = GpuNames}),
};

}  // namespace

std::span<const Option> AllOptions() { return kOptions; }

}  // namespace onnx_fp8
