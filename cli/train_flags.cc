// SPDX-License-Identifier: Apache-2.0
#include "cli/train_flags.h"

#include "base/check.h"
#include "cli/api_names.h"
#include "training/step/draw_weights.h"

namespace onnx_fp8 {

void TrainFlags::AddTo(Flags& flags, bool omits_model) {
  flags.Positional("MODEL", &model, "the .onnx file", !omits_model);
  flags.Group("Data");
  flags.Files("--data", &data,
              ".npz, .npy, .safetensors (arrays named like the model's inputs) "
              "or .bin (tokens)");
  flags.Files("--val-data", &val_data, "the same, for validation");
  data_flags.AddTo(flags);
  flags.Switch("--no-shuffle", &no_shuffle, "keep the order of the file");
  flags.Int("--seed", &seed, 0, "of the shuffle (default: 0)");
  flags.Group("Steps");
  flags.Int("--steps", &steps, 1, "optimizer steps in all");
  flags.Int("--epochs", &epochs, 1, "instead of --steps");
  flags.Int("--grad-accum", &grad_accum, 1, "batches per step (default: 1)");
  flags.Int("--save-every", &save_every, 1,
            "steps between checkpoints (default: 100)");
  flags.Int("--val-every", &val_every, 1,
            "steps between validations (default: ends of epochs)");
  flags.Choice("--save-best", &save_best, {"loss", "accuracy"},
               "also keep the checkpoint with the best validation, in OUT/best "
               "(eval --best, export --best)");
  shard.AddTo(flags);
  job_secret.AddTo(flags);
  flags.Switch("--no-overlap", &no_overlap,
               "wait for each transfer, instead of going on with the step");
  flags.Group("Optimizer");
  optimizer.AddTo(flags);
  flags.Text("--schedule", &schedule,
             "constant, linear or cosine, with warm-up steps: "
             "cosine:warmup=100,min=0.1");
  session.AddTo(flags);
  machine.AddTo(flags);
  flags.Group("Run");
  flags.File("--init", &init,
             "start from these weights (.safetensors; a whole state_dict too); "
             "normal:STD draws the weights of a model whose data files are "
             "missing, by --seed",
             kDrawnInit);
  flags.File("--ort-training", &ort_training,
             "instead of MODEL: a folder of onnxruntime.training.artifacts, "
             "with its loss, optimizer, weights and moments");
  AddCheckpoint(flags, &checkpoint);
  flags.File("--out", &out, "folder of the run");
  flags.Switch("--resume", &resume,
               "continue the run in --out with its own flags; a flag that is "
               "given here too replaces the run's, '' empties a list");
  flags.Switch("--json", &json, "the summary as one JSON object");
  flags.Switch("--memory-report", &memory_report,
               "print the values in memory when a step needs most of it");
  flags.Switch("--profile-summary", &profile_summary,
               "print where a step's time goes, and how near its nodes come "
               "to what the machine can do");
  flags.File("--timeline", &timeline,
             "cuda: write a Chrome trace of what the GPU does in some steps, "
             "and print its time by role; kernels run as they do without it");
  flags.Int("--timeline-steps", &timeline_steps, 1,
            "steps of --timeline, from the third one (default: 3)");
  flags.Example(
      "onnx-fp8 train mlp.onnx --data digits.npz --loss cross_entropy --epochs "
      "10 --out runs/digits --memory-report --profile-summary");
  flags.Example(
      "onnx-fp8 train gpt.onnx --data train.bin --val-data val.bin --seq-len "
      "128 --loss cross_entropy --steps 1000 --recipe tensorwise --filter-fqns "
      "lm_head --out runs/gpt");
  flags.Example("onnx-fp8 train --resume --out runs/gpt --recipe delayed");
}

void TrainFlags::Check(const Flags& flags) const {
  if (flags.Has("--steps") == flags.Has("--epochs")) {
    throw UsageError("expected one of --steps and --epochs");
  }
  if (flags.Has("--val-every") && val_data.empty()) {
    throw UsageError("--val-every needs --val-data");
  }
  if (flags.Has("--save-best") && val_data.empty()) {
    throw UsageError("--save-best needs --val-data");
  }
  CheckStart();
  if (flags.Has("--timeline-steps") && timeline.empty()) {
    throw UsageError("--timeline-steps needs --timeline");
  }
  if (grad_accum > 65536) {
    throw UsageError(
        Concat("--grad-accum: expected at most 65536, got ", grad_accum));
  }
  shard.Check(flags);
  MakeSchedule();
  MakeSession(flags);
  machine.Apply();
}

void TrainFlags::CheckStart() const {
  if (!checkpoint.empty() && ort_training.empty()) {
    throw UsageError("--checkpoint needs --ort-training");
  }
}

SessionOptions TrainFlags::MakeSession(const Flags& flags) const {
  SessionOptions options = session.Make(model);
  options.given = GivenOptions(flags);
  options.optimizer = optimizer.Make(flags);
  options.init = init;
  options.grad_accum = grad_accum;
  options.profile_steps = profile_summary;
  options.timeline = timeline;
  options.timeline_steps = timeline_steps;
  options.provider_options.timeline = !timeline.empty();
  options.seed = static_cast<uint64_t>(seed);
  options.shard = shard.Make();
  options.bucket_bytes = shard.bucket_bytes;
  options.overlap = !no_overlap;
  return options;
}

Schedule TrainFlags::MakeSchedule() const {
  try {
    return ParseSchedule(schedule);
  } catch (const Error& error) {
    throw UsageError(std::string("--schedule: ") + error.what());
  }
}

}  // namespace onnx_fp8
