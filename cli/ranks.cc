// SPDX-License-Identifier: Apache-2.0
#include "cli/ranks.h"

#include <cstdlib>
#include <fstream>

#include "base/check.h"
#include "cli/output.h"
#include "collectives/launcher.h"
#include "collectives/load_mpi.h"
#include "collectives/tcp_ranks.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {

SecretChoice SecretOf(const OptionSet& options, const std::string& folder) {
  if (options.Text("mesh").empty()) return {};
  const std::string file = options.Text("job_secret");
  SecretChoice choice = {.folder = folder, .insecure = options.On("insecure")};
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

std::unique_ptr<Communicator> OpenWorld(const std::string& mesh,
                                        const SecretChoice& secret) {
  const int64_t ranks = MeshOf(mesh).ranks();
  const std::optional<Launcher> launcher = FindLauncher(std::getenv);
  if (ranks == 1) {
    Check(!launcher || launcher->size == 1,
          "expected `mesh` dp=", launcher ? launcher->size : 1, " for the ",
          launcher ? launcher->size : 1, " processes that ",
          launcher ? launcher->name : "", " has launched, got ",
          mesh.empty() ? "no mesh" : mesh);
    return nullptr;
  }
  return launcher && launcher->meeting
             ? ConnectRanks(static_cast<int>(ranks), *launcher,
                            {.secret = secret, .say = Note})
             : LoadMpi(static_cast<int>(ranks), launcher);
}

}  // namespace onnx_fp8
