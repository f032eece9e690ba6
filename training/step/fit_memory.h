// SPDX-License-Identifier: Apache-2.0
//
// The search for the cheapest plan that fits into memory: a step runs in a way
// that takes less of it, and as few values as possible are computed again.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "providers/report/roofline.h"
#include "training/step/paper_step.h"
#include "training/step/step_graph.h"
#include "training/step/step_limit.h"

namespace onnx_fp8 {

// Plans a step with these choices.
using StepPlanner = std::function<PaperStep(const StepChoice&)>;

// A machine of which the search compares the times of nodes.
struct Hardware {
  GpuPeaks gpu;
  Efficiency efficiency = {};
};

// The GPU that is likely, or numbers of a usual CPU: the shares of nodes in a
// step's time differ little between machines of one kind.
Hardware HardwareOf(Device device);

// What the search has found.
struct MemoryFit {
  std::string plan = "a step";  // that has to fit
  // Whether the program, not the user, says what runs again.
  bool is_searched = true;
  size_t limit = 0, reserve = 0;
  size_t before = 0, after = 0;  // bytes of the step, reserve included
  // The first result of each node that runs again, by name. Ranks whose batches
  // have other sizes have these names, too.
  std::set<std::string> again;
  bool as_blocks = false;  // these nodes are the choice of `recompute=blocks`
  std::vector<std::string> ops;  // of these nodes, by the bytes they free
  size_t blocks = 0;             // layers that have such a node
  ExecutionChoice execution = {};
  double time_share = 0;  // of the step's time that all this adds
  // If it does not fit: what would need less.
  std::string hints;

  bool fits() const { return after <= limit; }
  // Whether the step is not planned as it is.
  bool chooses() const {
    return !again.empty() || execution != ExecutionChoice{};
  }
  // For the user: what was chosen and what that costs.
  std::string Text() const;
  // If it does not fit: the bytes that are needed, the limit, and the hints.
  std::string Complaint() const;
  // Errors: always, with the complaint.
  [[noreturn]] void Refuse() const;

 private:
  std::string TextOfAgain() const;
};

// The plan as it is, if it fits. Otherwise it runs in another way, where that
// makes the plan smaller (ExecutionChoice). If it is still too large, the one
// that ChooseToFit makes fit when its plan is exact, with as few tries as
// possible; at last its smallest. If this is too large, too, the plan of
// `recompute=blocks`, with as few blocks as fit. Where it can run in even less,
// all this is tried again.
// If nothing fits, the smallest of all these plans. If the options say what
// runs again, only the plan as it is counts. `chosen`: becomes that plan; null:
// nobody needs it.
MemoryFit FitMemory(const StepLimit& limit, const Hardware& hardware,
                    const SessionOptions& options, const StepPlanner& plan,
                    PaperStep* chosen = nullptr);

// Chooses the nodes of `fit` that may run again. (Another rank or another batch
// may have given other nodes these names.)
RecomputeChooser ChooserOf(const MemoryFit& fit);

// These nodes, and the way in which the step runs.
StepChoice ChoiceOf(const MemoryFit& fit);

// Graphs of the source have this choice; FitToKernels takes its execution, too.
void ApplyChoice(const StepChoice& choice, StepSource* source);

// "12.3 GiB", "812 MiB".
std::string MemoryText(size_t bytes);

}  // namespace onnx_fp8
