// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "onnx_fp8/trainer.h"

namespace onnx_fp8 {

// The checkpoint of a run with the best validation, in a folder of checkpoints
// of its own.
class BestCheckpoint {
 public:
  // If the session goes on with a run, so does this. Without a folder or a
  // validation nothing is saved. Errors: CheckSaveBest's.
  BestCheckpoint(TrainingSession& session, const Dataset* validation,
                 const TrainerSpec& spec);

  // Saves the session with these notes if no validation was as good before.
  // All ranks that share state call it. Errors: TrainingSession::Save's.
  void Take(const Evaluation& evaluation,
            std::map<std::string, std::string> notes);

  int64_t step() const { return step_; }  // 0: there is none yet

 private:
  // The larger, the better.
  double Score(const Evaluation& evaluation) const;

  TrainingSession& session_;
  const TrainerSpec& spec_;
  std::string folder_;
  double score_ = 0;
  int64_t step_ = 0;
};

}  // namespace onnx_fp8
