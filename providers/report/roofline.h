// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "graph/graph.h"
#include "onnx_fp8/profile_report.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// The peaks of a GPU's data sheet, per second: multiplications and additions of
// dense products of 8-bit floats, of 16-bit floats and of floats, and bytes to
// and from memory; to and from GPUs of its node, bytes in one direction that
// NCCL counts on (src/graph/topo.h: 18 links of 20.6 or 40.1 GB/s). `memory`:
// bytes that it has. `host_bytes`: to and from the host's memory, in one
// direction.
struct GpuPeaks {
  const char* name;
  double fp8, narrow, fp32, bytes;
  double node_bytes = 0;
  double memory = 0;
  double host_bytes = 0;
};

// The GPUs that we know: SXM versions.
std::span<const GpuPeaks> KnownGpus();

// The one with this name of the driver's ("NVIDIA H200"), or with one of ours.
// null: another GPU, or a version that is slower (PCIe, NVL, a part of a GPU).
const GpuPeaks* FindGpu(std::string device);

// The peak of the node's operations: for the operands' dtype of a product or an
// attention, else for floats.
double PeakOf(const Node& node, const GpuPeaks& gpu);

// The shares of their peaks that our kernels reach in a step, as measured on an
// H200 (docs/results/h200.md). Products are slower there than alone: the GPU is
// at its limit of power.
struct Efficiency {
  double products = 0.75;  // of floats: operands of 16 or 32 bits
  double fp8 = 0.66;       // of FP8 with a scale for each tensor or row
  double blocks = 0.53;    // of FP8 with a float scale for each block
  // For heads of 128 numbers or more. With smaller heads a score takes the same
  // time.
  double attention = 0.62;
  double attention_grad = 0.44;
  double memory = 0.80;
  // Of quantizers that find their scales: most read their operand twice, but
  // its bytes count once.
  double quantizing = 0.50;
};

// The bytes of the host's memory (Value::on_host) that the node reads. As many
// bytes cross the bus in each direction: updates write what they read.
double HostBytesOf(const Node& node);

// The seconds that the node takes on a GPU at these shares: for its operations
// or for its bytes, whichever takes longer. A product writes most of its result
// after its operations, so both times count. Bytes of the host's memory cross
// the bus in both directions at once.
double SecondsOf(const Node& node, const GpuPeaks& gpu,
                 const Efficiency& efficiency);

// The least time of the node: its operations at their peak take one time, its
// bytes (node_cost.h) at the memory's peak another, its bytes of the host's
// memory a third; this is the longest one.
double LeastMilliseconds(const Node& node, const GpuPeaks& gpu);

// The least time of one run of the graph on a GPU, as a profile of no steps: a
// node takes its LeastMilliseconds. Nodes run one after the other, and nothing
// stays in a cache from one to the next. Views take no time. Copies that a
// kernel makes for itself are not counted. REQUIRES: the graph is one that
// these kernels can run (FitToKernels).
ProfileReport Roofline(const Graph& graph, const KernelRegistry& kernels,
                       const GpuPeaks& gpu);

}  // namespace onnx_fp8
