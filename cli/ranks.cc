// SPDX-License-Identifier: Apache-2.0
#include "cli/ranks.h"

#include <cstdlib>
#include <fstream>

#include "base/check.h"
#include "cli/output.h"
#include "collectives/launcher.h"
#include "collectives/load_mpi.h"
#include "collectives/tcp_ranks.h"

namespace onnx_fp8 {

Mesh MeshOf(const std::string& flag) {
  if (flag.empty()) return {};
  try {
    return ParseMesh(flag);
  } catch (const Error& error) {
    throw UsageError(std::string("--mesh: ") + error.what());
  }
}

void SecretFlags::AddTo(Flags& flags) {
  flags.File("--job-secret", &file,
             "the ranks of torchrun know each other by the secret in this "
             "file (default: the variable ONNX_FP8_JOB_SECRET, else a new one "
             "that rank 0 leaves in --out while the ranks meet)");
  flags.Switch("--insecure", &insecure,
               "ranks of torchrun that have no secret trust whoever reaches "
               "their ports");
}

SecretChoice SecretFlags::Make(const std::string& mesh,
                               const std::string& folder) const {
  if (mesh.empty()) return {};
  SecretChoice choice = {.folder = folder, .insecure = insecure};
  const char* variable = std::getenv("ONNX_FP8_JOB_SECRET");
  if (!file.empty()) {
    constexpr size_t kMost = 4096;
    std::ifstream in(file, std::ios::binary);
    std::string text(kMost, '\0');
    in.read(text.data(), kMost);
    Check(in.eof() && in.gcount() > 0, "[", file,
          "] expected a file with a secret of at most ", kMost,
          " bytes, got none");
    text.resize(static_cast<size_t>(in.gcount()));
    choice.given = CheckedSecret(file, text);
  } else if (variable) {
    choice.given = CheckedSecret("ONNX_FP8_JOB_SECRET", variable);
  }
  return choice;
}

std::unique_ptr<Communicator> OpenWorld(const std::string& flag,
                                        const SecretChoice& secret) {
  const int64_t ranks = MeshOf(flag).ranks();
  const std::optional<Launcher> launcher = FindLauncher(std::getenv);
  if (ranks == 1) {
    Check(!launcher || launcher->size == 1,
          "expected --mesh dp=", launcher ? launcher->size : 1, " for the ",
          launcher ? launcher->size : 1, " processes that ",
          launcher ? launcher->name : "", " has launched, got ",
          flag.empty() ? "no mesh" : flag);
    return nullptr;
  }
  return launcher && launcher->meeting
             ? ConnectRanks(static_cast<int>(ranks), *launcher,
                            {.secret = secret, .say = Note})
             : LoadMpi(static_cast<int>(ranks), launcher);
}

}  // namespace onnx_fp8
