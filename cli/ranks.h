// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/job_secret.h"
#include "training/run/option.h"

namespace onnx_fp8 {

// How ranks over TCP know each other, by `job_secret` and `insecure`. The
// secret is in the file that `job_secret` names, else in the variable
// ONNX_FP8_JOB_SECRET; without a mesh there is none. `folder`: the folder of
// the run; "": there is no run. Errors: a file that can't be read; a secret
// that is too short.
SecretChoice SecretOf(const OptionSet& options, const std::string& folder);

// The ranks of this job: over TCP if torchrun's variables say so, and otherwise
// over MPI; null for a mesh of one. Errors: ConnectRanks' or LoadMpi's; a
// launcher started several processes, and there is no mesh: each would train
// alone, all in one folder.
std::unique_ptr<Communicator> OpenWorld(const std::string& mesh,
                                        const SecretChoice& secret);

}  // namespace onnx_fp8
