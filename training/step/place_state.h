// SPDX-License-Identifier: Apache-2.0
//
// The options `state_dir` and `offload`: which state lies outside of the memory
// of a session's provider.
#pragma once

#include <cstddef>
#include <string>

#include "graph/graph.h"
#include "onnx_fp8/session.h"
#include "onnx_fp8/tensor.h"
#include "providers/run/state_places.h"

namespace onnx_fp8 {

// Whether a GPU's moments lie in the host's memory.
bool OffloadsMoments(const SessionOptions& options);

// Errors: OptionError: an option that a provider with this place of its memory
// does not have.
void CheckPlaces(const SessionOptions& options, Device device);

// The places in which a planned step would keep its state. Does not look at the
// folder.
StatePlaces PlacesOnPaper(const SessionOptions& options, const Graph& model);

// The places of a session's state. Errors: CheckPlaces'; AllocateInFile's, of
// the folder.
StatePlaces StatePlacesOf(const SessionOptions& options, Device device,
                          const Graph& model);

// Marks the state that a device keeps in the host's memory (Value::on_host).
void MarkOffloaded(Graph& graph);

// Where these bytes of state lie; "": the options ask for no place.
std::string PlacesRemark(const SessionOptions& options, size_t bytes);

}  // namespace onnx_fp8
