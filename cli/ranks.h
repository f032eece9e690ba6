// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cli/flags.h"
#include "collectives/communicator.h"
#include "collectives/job_secret.h"
#include "collectives/mesh.h"

namespace onnx_fp8 {

// The mesh of `--mesh`; one rank for "". Errors: UsageError for other words.
Mesh MeshOf(const std::string& flag);

// --job-secret and --insecure: how ranks over TCP know each other.
struct SecretFlags {
  std::string file;
  bool insecure = false;

  void AddTo(Flags& flags);
  // `folder`: of the run, if it has one. The file counts, then the variable
  // ONNX_FP8_JOB_SECRET; none for a mesh of one rank. Errors: a file that can't
  // be read; a secret that is too short.
  SecretChoice Make(const std::string& mesh, const std::string& folder) const;
};

// The ranks of this job: over TCP if torchrun's variables say so, and otherwise
// over MPI; null for a mesh of one. Errors: ConnectRanks' or LoadMpi's; a
// launcher started several processes, and there is no mesh: each would train
// alone, all in one folder.
std::unique_ptr<Communicator> OpenWorld(const std::string& flag,
                                        const SecretChoice& secret);

}  // namespace onnx_fp8
