// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "graph/graph.h"
#include "providers/run/executor.h"

namespace onnx_fp8 {

// Runs one graph on the CPU and the other one on the GPU, with the same random
// inputs. They have the same outputs in the same order. Expects each number of
// the GPU within `relative` of the tensor's largest one; infinite numbers and
// NaN must be the same.
void ExpectCpusResults(const std::shared_ptr<Graph>& for_cpu,
                       const std::shared_ptr<Graph>& for_cuda, double relative);

// The same for the graph of a text (tests/graph/parse.h), whose outputs are all
// results of its nodes.
void ExpectCpusResults(const std::string& text, double relative);

// The same with operands and results that the GPU keeps in 16 bits where its
// kernels can, in bfloat16 and in float16, but for those whose names begin with
// "stream". Both sides round them, and may round a number between two to
// either, unless `relative` is 0.
void ExpectCpusResultsIn16Bits(const std::string& text, double relative);

// The graph of the text with a RoundTo before each operand and behind each
// result that the GPU's kernels keep in 16 bits. Its outputs are results, or
// readers of rounded results, and then the amax, too.
std::shared_ptr<Graph> RoundedForGpu(const std::string& text, DType dtype);

// The same with those feeds, where each byte must be the CPU's. `what` names
// the feeds in messages.
void ExpectCpusBytes(const std::shared_ptr<Graph>& for_cpu,
                     const std::shared_ptr<Graph>& for_cuda,
                     const TensorMap& feeds, const std::string& what);

// The message of the Error in which the graph ends on the GPU; "" if it does
// not.
std::string ErrorOnGpu(const std::string& text);

}  // namespace onnx_fp8
