// SPDX-License-Identifier: Apache-2.0
#include "providers/report/roofline.h"

#include <algorithm>
#include <cctype>

#include "graph/attention_shape.h"
#include "graph/node_cost.h"
#include "graph/op_facts.h"
#include "providers/node_profile.h"
#include "providers/view.h"

namespace onnx_fp8 {
namespace {

// Without sparsity. Sources: NVIDIA's data sheets of H100 SXM and H200 SXM; for
// B200 the "Blackwell Architecture Technical Brief", HGX B200 at 1000 W. All
// have PCIe 5.0 with 16 lanes: "128 GB/s", which counts both directions.
constexpr double kPcie5 = 64e9;
constexpr GpuPeaks kGpus[] = {
    {"h100", 1979e12, 989e12, 67e12, 3.35e12, 18 * 20.6e9, 80e9, kPcie5},
    {"h200", 1979e12, 989e12, 67e12, 4.8e12, 18 * 20.6e9, 141e9, kPcie5},
    {"b200", 4500e12, 2250e12, 80e12, 8e12, 18 * 40.1e9, 180e9, kPcie5},
};

bool IsView(const Node& node, const KernelRegistry& kernels) {
  const KernelEntry* entry = kernels.Find(node.domain, node.op);
  return entry && CanBeView(node, entry->traits);
}

// The seconds of the node's bytes, at this share of the speeds: of the bytes
// that cross the bus, or of the others, whichever takes longer.
double SecondsOfBytes(const Node& node, const GpuPeaks& gpu, double share) {
  const double bytes = CostOf(node).bytes, host = HostBytesOf(node);
  if (host == 0) return bytes / (share * gpu.bytes);
  return std::max(std::max(bytes - 2 * host, 0.0) / (share * gpu.bytes),
                  host / (share * gpu.host_bytes));
}

// Whether an operand has scales of blocks that the kernel multiplies by: tensor
// cores know the ones of MX formats. 0: the block is a whole axis.
bool HasBlocks(const Node& node) {
  if (node.in(1)->dtype != DType::kFloat) return false;
  auto both = [&](const char* rows, const char* columns) {
    return node.Int(rows, 0) > 0 && node.Int(columns, 0) > 0;
  };
  return both("a_block_rows", "a_block_columns") ||
         both("b_block_rows", "b_block_columns");
}

double ShareOfSmallHeads(const Node& node) {
  constexpr double kWhole = 128;
  const auto shape = ShapeOfAttention(node);
  if (!shape) return 1;
  return std::min(static_cast<double>(std::max(shape->d, shape->e)) / kWhole,
                  1.0);
}

// The share of its peak that the node's operations reach.
double ShareOf(const Node& node, const Efficiency& efficiency) {
  switch (FactsOf(node).kind) {
    case OpKind::kScaledProduct:
      return HasBlocks(node) ? efficiency.blocks : efficiency.fp8;
    case OpKind::kAttention:
      return efficiency.attention * ShareOfSmallHeads(node);
    case OpKind::kAttentionGrad:
      return efficiency.attention_grad * ShareOfSmallHeads(node);
    default:
      return efficiency.products;
  }
}

double BytesOfResults(const Node& node) {
  double bytes = 0;
  for (const Value* out : node.outputs()) {
    if (out && out->concrete()) bytes += static_cast<double>(BytesOf(*out));
  }
  return bytes;
}

}  // namespace

std::span<const GpuPeaks> KnownGpus() { return kGpus; }

const GpuPeaks* FindGpu(std::string device) {
  std::ranges::transform(device, device.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const char* other : {"pcie", "nvl", "mig"}) {
    if (device.find(other) != std::string::npos) return nullptr;
  }
  for (const GpuPeaks& gpu : kGpus) {
    size_t at = device.find(gpu.name);
    // A GB200 is no B200.
    if (at != std::string::npos &&
        (at == 0 ||
         !std::isalpha(static_cast<unsigned char>(device[at - 1])))) {
      return &gpu;
    }
  }
  return nullptr;
}

double PeakOf(const Node& node, const GpuPeaks& gpu) {
  switch (FactsOf(node).kind) {
    case OpKind::kScaledProduct:
      return gpu.fp8;
    case OpKind::kProduct:
    case OpKind::kAttention:
    case OpKind::kAttentionGrad:
      return ByteSize(StoredAs(*node.in(0))) == 2 ? gpu.narrow : gpu.fp32;
    default:
      return gpu.fp32;
  }
}

double HostBytesOf(const Node& node) {
  double bytes = 0;
  for (const Value* in : node.inputs()) {
    if (in && in->on_host) bytes += static_cast<double>(BytesOf(*in));
  }
  return bytes;
}

double SecondsOf(const Node& node, const GpuPeaks& gpu,
                 const Efficiency& efficiency) {
  const OpKind kind = FactsOf(node).kind;
  const bool finds_scales =
      kind == OpKind::kQuantize && FactsOf(node).scale != CodeScale::kGiven;
  const double memory =
      finds_scales ? efficiency.quantizing : efficiency.memory;
  double seconds =
      CostOf(node).flops / (ShareOf(node, efficiency) * PeakOf(node, gpu));
  if (kind == OpKind::kProduct || kind == OpKind::kScaledProduct) {
    seconds += BytesOfResults(node) / (memory * gpu.bytes);
  }
  return std::max(seconds, SecondsOfBytes(node, gpu, memory));
}

double LeastMilliseconds(const Node& node, const GpuPeaks& gpu) {
  return 1e3 * std::max(CostOf(node).flops / PeakOf(node, gpu),
                        SecondsOfBytes(node, gpu, 1));
}

ProfileReport Roofline(const Graph& graph, const KernelRegistry& kernels,
                       const GpuPeaks& gpu) {
  ProfileReport report;
  for (const Node& node : graph.nodes()) {
    if (IsView(node, kernels)) continue;
    NodeProfile row = DescribeNode(node);
    row.milliseconds = LeastMilliseconds(node, gpu);
    row.host_bytes = HostBytesOf(node);
    report.milliseconds += row.milliseconds;
    report.nodes.push_back(row);
  }
  std::ranges::stable_sort(report.nodes, std::greater<>(),
                           &NodeProfile::milliseconds);
  return report;
}

}  // namespace onnx_fp8
