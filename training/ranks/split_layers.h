// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collectives/mesh.h"
#include "graph/graph.h"
#include "training/ranks/split_region.h"

namespace onnx_fp8 {

// What became of a linear layer, or of an embedding.
struct LayerSplit {
  enum Kind {
    kWhole,    // each rank has all of it, because of `why`
    kColumns,  // a rank has a part of its outputs
    kRows,   // a rank has a part of its inputs; the ranks add up their outputs
    kTable,  // a rank has a part of a table's rows; the ranks add up theirs
  };
  std::string weight;  // the parameter
  Shape part;          // of the weight, on a rank
  Kind kind = kWhole;
  std::string why;
};

const char* Name(LayerSplit::Kind kind);

struct SplitLayersReport {
  std::vector<LayerSplit> layers;  // in the order of the graph
  // Initializers of which each rank has a part, by name.
  std::map<std::string, AxisSplit> initializers;
  // Names of other values that the ranks have parts of at the start: slices of
  // what all have.
  std::vector<std::string> slices;
  // Whether the ranks divide the tokens between layers, and why not everywhere.
  bool divides_tokens = false;
  std::string whole_tokens;
};

// Divides the layers of a forward graph among the ranks of the axis tp: the
// graph becomes one rank's. Parts of parameters are zeros (their values are
// state), parts of constants belong to rank `tensor_rank`.
//
// Each layer, the largest first, begins a search for the region that divides
// its inputs (split_region.h), and then for one that divides its outputs: up to
// a CrossEntropy over parts of the classes. An embedding with a row for each of
// these classes is divided, too. In front of a region CopyToRanks adds up
// gradients. AllReduce adds up the results of its last layers; then comes their
// bias.
//
// Where the nodes between two regions allow it, each rank computes them for a
// part of the tokens: AllGather joins these in front of a region, and
// ReduceScatter takes the place of AllReduce behind it. Dropout there draws
// other numbers on each rank.
//
// Outputs of the graph are joined, so they and the loss are the same on all
// ranks. REQUIRES: NormalizeLinear has run; concrete shapes; mesh.tp > 1.
SplitLayersReport SplitLayers(Graph& graph, const Mesh& mesh,
                              int64_t tensor_rank);

// Readers of a CopyToRanks read its operand, after the backward is built.
void RemoveCopiesToRanks(Graph& graph);

// A remark about layers that are whole on each of `ranks` ranks of the axis tp;
// "" if all are divided. Errors: no layer is divided.
std::string LayersRemark(const std::vector<LayerSplit>& layers,
                         const std::string& file, int64_t ranks);

}  // namespace onnx_fp8
