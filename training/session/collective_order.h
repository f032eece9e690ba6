// SPDX-License-Identifier: Apache-2.0
//
// Ranks with other samples may have other graphs: with more of them, or with
// longer ones, they divide tokens in other ways. What they compute for a batch
// then comes in another order, and yet all must call the collectives that they
// share in one order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collectives/mesh.h"
#include "graph/graph.h"
#include "training/step/step_graph.h"

namespace onnx_fp8 {

// What a rank lacks before it can train with a batch.
enum class Lacks { kNothing, kWeightCopies, kPlan };

// The order of the collectives over the sample axes, for each set of them that
// the graphs of a session have: as in the first rank's first graph with this
// set, until the session forgets them. Does nothing for kinds of graphs that do
// not train, or for ranks that have the same samples.
class CollectiveOrder {
 public:
  // `ranks` may be null, and must outlive this.
  explicit CollectiveOrder(const MeshRanks* ranks) : ranks_(ranks) {}

  // Whether a graph of this kind has such collectives.
  bool IsNeeded(StepKind kind) const;

  // If any rank lacks a plan, every rank gives its graph. If it has no plan
  // (`is_new`), its collectives take their places and their buckets in the
  // common order, if there is one for this set.
  void Agree(StepKind kind, Graph& graph, bool is_new);
  // All ranks have dropped their plans, and new ones have other orders. All
  // call this at the same time.
  void Forget() { known_.clear(); }

 private:
  struct Place {
    std::string result;  // name of the collective's
    int64_t bucket = 0;
  };
  using Places = std::vector<Place>;
  using Names = std::vector<std::string>;  // sorted

  static Places PlacesIn(const Graph& graph);
  static Names NamesOf(const Places& places);
  static void Follow(const Places& places, Graph& graph);

  int64_t Most(int64_t mine) const;
  Places OfFirstRank(const Places& mine) const;

  const MeshRanks* ranks_;
  std::map<Names, Places> known_;
};

}  // namespace onnx_fp8
