// SPDX-License-Identifier: Apache-2.0
//
// One node for each op that has kernels, and numbers at the ends of the floats
// for it: zeros of both signs, the smallest and the largest numbers,
// infinities, and masks with which rows see nothing.
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/tensor.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

struct ExtremeCase {
  std::string op;    // as KernelRegistry::Names() has it
  std::string text;  // of the node, behind inputs that all cases share
};

void PrintTo(const ExtremeCase& c, std::ostream* out);

const std::vector<ExtremeCase>& ExtremeCases();

// The kernels of the registry that no case has, with the reason why they need
// none; "" if there is no reason.
std::map<std::string, std::string> WithoutExtremeCase(
    const KernelRegistry& kernels);

// The node; its results are the graph's outputs. Its floats are of the dtype.
std::shared_ptr<Graph> GraphOf(const ExtremeCase& c, DType dtype);

// Graphs with the same inputs and results, by the bodies of the op in float and
// in double; by the op itself in double if it has no body.
std::vector<std::shared_ptr<Graph>> TruthsOf(const ExtremeCase& c);

// For INSTANTIATE_TEST_SUITE_P.
std::string NameOfExtreme(const ExtremeCase& c, size_t index);

// Feeds of several kinds for the case's graph of floats, by their names.
std::map<std::string, TensorMap> ExtremeFeeds(const ExtremeCase& c,
                                              const Graph& graph);

// The first difference between the results and all of the `truths`, element by
// element; "" if there is none. Numbers may differ by `relative` of the largest
// finite one beside them.
std::string DifferenceFromAll(const TensorMap& got,
                              const std::vector<TensorMap>& truths,
                              double relative);

}  // namespace onnx_fp8
