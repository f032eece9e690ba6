// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/joined.h"
#include "base/parallel.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "training/make_provider.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

// The device and the libraries of a provider, or what is missing.
std::string DescriptionOf(const std::string& provider) {
  try {
    ProviderInfo info = MakeProvider(provider)->Describe();
    return info.isa + ", " + info.gemm;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

int Version(const Arguments& arguments) {
  Flags flags({"version",
               "What this program and this machine are.",
               {{"Options", {"JSON", "Machine"}}},
               {"onnx-fp8 version", "onnx-fp8 version --json"}});
  if (!flags.Parse(arguments)) return 0;
  const bool json = flags.On("json");
  ApplyMachine(flags);
  std::vector<std::string> names = ProviderNames(), providers;
  std::ranges::copy_if(names, std::back_inserter(providers), IsUsable);
  ProviderInfo host = MakeProvider(names.front())->Describe();
  nlohmann::ordered_json info = {
      {"version", ONNX_FP8_VERSION},
      {"isa", host.isa},
      {"gemm", host.gemm},
      {"providers", Joined(providers)},
      {"threads", NumThreads()},
      {"onnx", ONNX_FP8_ONNX_VERSION},
      {"protobuf", ONNX_FP8_PROTOBUF_VERSION},
  };
  for (size_t i = 1; i < names.size(); ++i) {
    info[names[i]] = DescriptionOf(names[i]);
  }
  if (json) {
    Out() << JsonLine(info);
    return 0;
  }
  Out() << "onnx-fp8 " << ONNX_FP8_VERSION << "\n";
  for (const auto& [key, value] : info.items()) {
    if (key == "version") continue;
    std::string name = key;
    name.resize(10, ' ');
    Out() << "  " << name
          << (value.is_string() ? value.get<std::string>() : value.dump())
          << "\n";
  }
  return 0;
}

}  // namespace onnx_fp8
