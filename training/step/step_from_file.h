// SPDX-License-Identifier: Apache-2.0
//
// A training step that lies in a file as a graph: one that StepFile wrote, or
// one of another program. A session runs this graph instead of building one.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "graph/graph.h"
#include "graph/onnx/step_notes.h"
#include "graph/onnx/written_file.h"
#include "onnx_fp8/session.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

// The part of a step that the graph of the session's model does not hold.
struct FileStep {
  Written kind = Written::kStep;
  // The notes that the file has: they describe the whole step, or the part of
  // it that runs for each micro-batch. A step of another program has no notes;
  // this then holds the facts that its graph shows.
  StepNotes notes;
  // The file and graph of the update after the last micro-batch; null: the step
  // is whole.
  std::string apply_path;
  std::unique_ptr<Graph> apply;
  StepNotes apply_notes;
};

// Makes `graph`, a step as ReadModel leaves it, the model of a session: its
// inputs are the ones fed with data, its outputs the loss, the model's own and
// the values that a session reports. Tensors that only the update has become
// initializers too. Settings of the step go to `options`.
//
// The loss of another program's step is the output that options->loss names
// ("output:NAME"), or else its only output of one float. A float input of rank
// 0 that is called lr or learning_rate takes the learning rate.
//
// Errors: a step that an older version wrote; an update, or a micro step
// without its update; files that do not belong together; TakeStepSettings'; a
// step of another program without such a loss.
std::shared_ptr<const FileStep> OpenFileStep(Graph& graph,
                                             SessionOptions* options);

// Errors: a step trains on one process, because its graph has no sums over
// ranks.
void RequireOneProcess(const Graph& graph, const FileStep& file);

// --- sources and passes of the pipelines for such files

// The graph for these shapes, with its bindings. REQUIRES: source.step.
StepGraph StartFileStep(const StepSource& source, StepKind kind,
                        const std::map<std::string, Shape>& shapes,
                        const InputValues& values, Spending* spending);

// Leaves the report of the step as the only outputs.
void KeepReport(StepGraph* step);

// Leaves the loss and the outputs of the model, and no state that moves.
void KeepForward(StepGraph* step);

// The same, and the gradients. Errors: a step of another program, whose
// gradients are not known.
void KeepGradients(const FileStep& file, StepGraph* step);

// Removes state and defaults that nothing reads any more.
void DropIdleState(Graph& graph);

}  // namespace onnx_fp8
