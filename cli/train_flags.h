// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/data_flags.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "cli/shard_flags.h"
#include "onnx_fp8/schedule.h"

namespace onnx_fp8 {

// The flags of `train`. A run's config.json holds the same flags, and `eval`
// and `export` read them back through this struct.
struct TrainFlags {
  std::string model, out, init, ort_training, checkpoint;
  std::vector<std::string> data, val_data;
  DataFlags data_flags;
  SessionFlags session;
  OptimizerFlags optimizer;
  std::string schedule = "constant";
  int64_t steps = 0;
  int64_t epochs = 0;
  int64_t grad_accum = 1;
  int64_t seed = 0;
  int64_t save_every = 100;
  int64_t val_every = 0;
  std::string save_best;
  bool no_shuffle = false;
  bool resume = false;
  bool json = false;
  bool memory_report = false;
  bool profile_summary = false;
  std::string timeline;
  int64_t timeline_steps = 3;
  ShardFlags shard;
  SecretFlags job_secret;
  bool no_overlap = false;
  MachineFlags machine;

  // With --resume or --ort-training, MODEL may be omitted.
  void AddTo(Flags& flags, bool omits_model);
  // Checks everything that needs no model; sets the threads. Errors:
  // UsageError.
  void Check(const Flags& flags) const;
  // Check's part for the start of the run.
  void CheckStart() const;
  SessionOptions MakeSession(const Flags& flags) const;
  // Errors: UsageError.
  Schedule MakeSchedule() const;
};

}  // namespace onnx_fp8
