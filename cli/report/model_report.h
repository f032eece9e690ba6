// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/mesh.h"
#include "graph/passes/pass.h"
#include "graph/passes/specialize.h"
#include "onnx_fp8/session.h"
#include "providers/report/roofline.h"
#include "training/ranks/split_layers.h"

namespace onnx_fp8 {

// A size in a model with open axes: a number, or a text in terms of the axes
// ("batch·seq"; "?" if it is no product of them).
struct SizeText {
  int64_t value = -1;  // -1: open
  std::string text;
};

struct GemmReport {
  std::string node, module, fqn, role;
  SizeText m, k, n;
  bool fp8 = false;
  std::string reason;
  std::optional<double> speedup;  // of its layer, as --auto-filter sees it
  // "k", "n" or both, if CUDA wants them to be multiples of 16 (or of a block)
  // and they are not. M is free; it is the K of wgrad.
  std::string padding;
  // What the provider copies for it (product_copies.h); "" on the CPU.
  std::string copies;
  std::string recipe;  // of FP8 products: RecipeText
};

struct InitializerRow {
  std::string name, fqn, role, reason, remark;
  std::string next;  // of a step's state: the output that replaces it
  DType dtype;
  Shape shape;
  size_t bytes;
};

// The memory that training needs, in bytes. The last three lie in the arena.
struct MemoryForecast {
  size_t parameters = 0, moments = 0, scaling = 0, arena = 0, naive = 0;
  size_t averages = 0;     // of weights
  size_t fp8_weights = 0;  // FP8 copies of weights that live between steps
  size_t gradients = 0, saved = 0, fp8_copies = 0;
  size_t outside = 0;  // state in files or in the host's memory, no part of it
  size_t total() const {
    return parameters + moments + averages + scaling + fp8_weights + arena;
  }
};

// The times of making the parts of a report. `step_graph` includes specializing
// (SpecializeReport).
struct ReportSeconds {
  double read = 0, step_graph = 0, plan = 0;
};

struct ModelReport {
  std::vector<InputInfo> inputs, outputs;
  std::vector<InitializerRow> initializers;
  std::vector<GemmReport> gemms;
  std::vector<LayerSplit> layers;  // with several ranks on the axis tp
  bool divides_tokens = false;     // as SplitLayersReport's
  std::string whole_tokens;
  std::optional<SpecializeReport> specialize;
  std::optional<MemoryForecast> memory;
  std::optional<MemoryReport> memory_report;  // goes with `memory`
  std::optional<ProfileReport> roofline;      // goes with `memory`
  std::vector<std::string> open_axes;         // without a size
  std::vector<std::string> notes;
  ReportSeconds seconds;
  std::vector<PassSeconds> passes;
};

// Reads the model and builds its training step. Without a loss in `options`,
// the loss is the sum of the model's first float output. If an op has no
// gradient, it builds the forward graph, with a note. A file that `rewrite` has
// made is taken as it is, with a note. For a training step, the report
// describes the graph of the file. `axes`: sizes of dynamic axes by name.
// `values`: values of inputs that decide branches or sizes. `gpu`: the GPU of
// the roofline; null: the report has no roofline. `mesh`: the report describes
// one rank of it. The ranks along dp and replicate differ in their samples
// alone. Open axes leave their names in the sizes of
// the products, and there is no forecast. Errors: the import's; OptionError for
// an axis or input that does not exist.
ModelReport MakeModelReport(const SessionOptions& options,
                            const std::map<std::string, int64_t>& axes,
                            const InputValues& values = {},
                            const GpuPeaks* gpu = nullptr,
                            const Mesh& mesh = {});

// A size that is `a` if the axes have the sizes `at_a`, and `b` if they have
// `at_b`.
SizeText Generalize(int64_t a, int64_t b,
                    const std::map<std::string, int64_t>& at_a,
                    const std::map<std::string, int64_t>& at_b);

}  // namespace onnx_fp8
