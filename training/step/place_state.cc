// SPDX-License-Identifier: Apache-2.0
#include "training/step/place_state.h"

#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/file_memory.h"
#include "onnx_fp8/option_error.h"
#include "optimizers/optimizer.h"
#include "training/ranks/sharded_state.h"
#include "training/step/fit_memory.h"

namespace onnx_fp8 {
namespace {

// The names of all state that may hold moments of the model's parameters, and
// of the moments that a step in a file has.
std::set<std::string> NamesOfMoments(const Graph& graph) {
  std::set<std::string> names;
  for (const Value* value : graph.Initializers()) {
    if (value->role == Role::kMoment) names.insert(value->name);
    if (value->role != Role::kParameter) continue;
    for (const char* moment : kMoments) {
      const std::string hint = value->name + "." + moment;
      names.insert(StateName(graph, hint));
      names.insert(StateName(graph, hint + kMomentScale));
    }
  }
  return names;
}

}  // namespace

bool OffloadsMoments(const SessionOptions& options) {
  return options.offload == "optimizer";
}

void CheckPlaces(const SessionOptions& options, Device device) {
  const bool on_host = device == Device::kHost;
  if (!options.state_dir.empty() && !on_host) {
    throw OptionError(
        "`state_dir`: expected a step on the provider cpu, got one on a GPU, "
        "for which `offload=optimizer` keeps moments in the host's memory");
  }
  if (options.offload != "none" && !OffloadsMoments(options)) {
    throw OptionError("`offload`: expected none or optimizer, got " +
                      options.offload);
  }
  if (OffloadsMoments(options) && on_host) {
    throw OptionError(
        "`offload`: expected a step on a GPU, got one on the provider cpu, for "
        "which `state_dir` keeps large state in files");
  }
}

StatePlaces PlacesOnPaper(const SessionOptions& options, const Graph& model) {
  StatePlaces places{.folder = options.state_dir, .on_host = {}};
  if (OffloadsMoments(options)) places.on_host = NamesOfMoments(model);
  return places;
}

StatePlaces StatePlacesOf(const SessionOptions& options, Device device,
                          const Graph& model) {
  CheckPlaces(options, device);
  StatePlaces places = PlacesOnPaper(options, model);
  if (places.folder.empty()) return places;
  try {
    AllocateInFile(places.folder, 1);
  } catch (const Error& error) {
    Fail("`state_dir`: ", error.what());
  }
  // Files follow later, when the process may have another working directory.
  places.folder = std::filesystem::absolute(places.folder).string();
  return places;
}

void MarkOffloaded(Graph& graph) {
  for (Value* value : graph.Initializers()) {
    value->on_host = value->role == Role::kMoment;
  }
}

std::string PlacesRemark(const SessionOptions& options, size_t bytes) {
  if (OffloadsMoments(options)) {
    return Concat("`offload`: ", MemoryText(bytes),
                  " of moments lie in the host's memory");
  }
  if (options.state_dir.empty()) return "";
  return Concat("`state_dir`: ", MemoryText(bytes),
                " of state lie in files of ", options.state_dir);
}

}  // namespace onnx_fp8
