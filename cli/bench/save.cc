// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/save.h"

#include "base/check.h"
#include "base/file.h"
#include "base/parallel.h"
#include "training/make_provider.h"

namespace onnx_fp8 {

std::string MachineText(const std::string& provider) {
  ProviderInfo info = MakeProvider(provider)->Describe();
  std::string text;
  for (const std::string& fact : {info.isa, info.gemm}) {
    if (!fact.empty()) text += fact + ", ";
  }
  return Concat(text, NumThreads(), NumThreads() == 1 ? " thread" : " threads");
}

void SaveSpeedTable(const std::string& file, const SpeedTable& table,
                    const SpeedOrigin& origin) {
  WriteFileAtomically(file, SpeedTableJson(table, origin));
}

}  // namespace onnx_fp8
