// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/ort_training.h"
#include "collectives/job_secret.h"
#include "collectives/mesh.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// The ranks of this process' job, of all its sessions and runs. They stay until
// CloseRanks, because MPI starts once in a process. Errors: OpenWorld's;
// another mesh than before.
std::shared_ptr<const MeshRanks> OpenRanks(const std::string& mesh,
                                           const SecretChoice& secret);
// Ends the job in good order; all ranks call it.
void CloseRanks();
// Ends all ranks of the job, if there is one: they wait for this one.
void AbortRanks(const std::string& reason);

// The options of a session, for its docstring.
std::string SessionKeywords();

// A session with options of `train`. Calls from several threads take turns.
class HostSession {
 public:
  // Errors: OptionError for an option of the training loop; TrainingSession's.
  explicit HostSession(const Arguments& arguments);
  ~HostSession();

  // Calls fn(session) while no other thread uses it. Not with Python's lock.
  template <typename F>
  auto With(F&& fn) {
    std::lock_guard turn(mutex_);
    return fn(*session_);
  }

  double lr() const { return lr_; }
  // Errors: OptionError; the session has no loss, and so can't train.
  void RequireLoss() const;
  // Whether labels of floats are probabilities of the classes.
  bool soft_labels() const { return soft_labels_; }
  // The inputs and the label, for conversions of feeds.
  const std::vector<InputInfo>& inputs() const { return inputs_; }

 private:
  std::shared_ptr<const MeshRanks> ranks_;  // outlive the session
  std::optional<OrtStart> start_;           // its file does, too
  std::unique_ptr<TrainingSession> session_;
  std::vector<InputInfo> inputs_;
  bool has_loss_ = false;
  double lr_ = 0;
  bool soft_labels_ = false;
  std::mutex mutex_;
};

}  // namespace onnx_fp8
