// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/ep.h"

#include <algorithm>
#include <memory>

#include "graph/onnx/onnx_io.h"
#include "graph/passes/chunk_loss.h"
#include "providers/ort/capability.h"
#include "providers/ort/ep_options.h"
#include "providers/ort/graph_runner.h"
#include "providers/ort/ort_graph.h"
#include "providers/ort/rewrite_products.h"
#include "training/make_provider.h"
#include "training/step/pipelines.h"

namespace onnx_fp8 {
namespace {

// A group of nodes that the session runs as one.
class FusedNode : public OrtNodeComputeInfo {
 public:
  FusedNode(std::shared_ptr<Graph> graph, const OrtNode* node,
            const EpOptions& options)
      : OrtNodeComputeInfo{},
        runner_(std::move(graph), options.device,
                [bytes = LossChunkBytes(options.loss_chunk, options.device)](
                    Graph& planned, PassRunner& runner) {
                  FuseForward(planned, runner);
                  ChunkLoss(planned, bytes, LogitsElsewhere::kJoined);
                }),
        threads_(options.threads) {
    ort_version_supported = kEpVersion;
    CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*,
                     void** state) noexcept -> OrtStatus* {
      *state = self;  // a session's runs share it
      return nullptr;
    };
    Compute = [](OrtNodeComputeInfo* self, void*,
                 OrtKernelContext* context) noexcept {
      auto* fused = static_cast<FusedNode*>(self);
      return Guarded([&] {
        RunInContext(fused->runner_, context, fused->inputs_, fused->threads_);
      });
    };
    ReleaseState = [](OrtNodeComputeInfo*, void*) noexcept {};
    auto inputs = InputsOf(node);
    for (const Value* input : runner_.graph().inputs) {
      auto it = std::ranges::find(inputs, input->name, NameOf);
      Check(it != inputs.end(), "[input ", input->name,
            "] expected an input of the fused node");
      inputs_.push_back(static_cast<size_t>(it - inputs.begin()));
    }
  }

 private:
  GraphRunner runner_;
  Threads threads_;
  std::vector<size_t> inputs_;  // of the graph: which inputs of the node
};

class Ep : public OrtEp {
 public:
  // Errors: as MakeProvider's.
  explicit Ep(EpOptions options) : OrtEp{}, options_(std::move(options)) {
    MakeProvider(options_.device);  // a session without a device ends here
    ort_version_supported = kEpVersion;
    GetName = [](const OrtEp*) noexcept { return kEpName; };
    GetCapability = [](OrtEp* self, const OrtGraph* graph,
                       OrtEpGraphSupportInfo* info) noexcept {
      auto* ep = static_cast<Ep*>(self);
      return Guarded([&] { ep->Claim(graph, info); });
    };
    Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** nodes,
                 size_t count, OrtNodeComputeInfo** infos, OrtNode**) noexcept {
      auto* ep = static_cast<Ep*>(self);
      return Guarded([&] { ep->CompileAll(graphs, nodes, count, infos); });
    };
    ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** infos,
                                 size_t count) noexcept {
      for (size_t i = 0; i < count; ++i) {
        delete static_cast<FusedNode*>(infos[i]);
      }
    };
  }

 private:
  void Claim(const OrtGraph* graph, OrtEpGraphSupportInfo* info) const {
    // The session may free the constants: we have copies.
    OrtNodeFusionOptions options = {};
    options.ort_version_supported = kEpVersion;
    options.drop_constant_initializers = true;
    const KernelRegistry& kernels = KernelsOf(options_.device).kernels;
    for (const NodeGroup& group : GroupsOf(graph, kernels)) {
      Must(OrtEps().EpGraphSupportInfo_AddNodesToFuse(info, group.data(),
                                                      group.size(), &options));
    }
  }

  void CompileAll(const OrtGraph** graphs, const OrtNode** nodes, size_t count,
                  OrtNodeComputeInfo** infos) {
    std::vector<std::shared_ptr<Graph>> ours;
    for (size_t i = 0; i < count; ++i) {
      ours.push_back(ToGraph(OpsetOf(graphs[i]), NodesOf(graphs[i]),
                             InputsOf(nodes[i]), OutputsOf(nodes[i])));
    }
    if (count > 0 && options_.spec.recipe.enabled()) {
      Rewrite(PathOf(graphs[0]), ours);
    }
    std::vector<std::unique_ptr<FusedNode>> fused;
    for (size_t i = 0; i < count; ++i) {
      fused.push_back(std::make_unique<FusedNode>(ours[i], nodes[i], options_));
    }
    for (size_t i = 0; i < count; ++i) infos[i] = fused[i].release();
  }

  // The file as it is; null if it can't be read (any more).
  static std::unique_ptr<Graph> ReadNotes(const std::string& path) {
    try {
      return path.empty() ? nullptr : ReadModel(path, {.as_is = true});
    } catch (const Error&) {
      return nullptr;
    }
  }

  void Rewrite(const std::string& path,
               const std::vector<std::shared_ptr<Graph>>& graphs) const {
    auto decisions = RewriteProducts(graphs, options_.spec, ReadNotes(path));
    CheckPatterns(decisions, options_.spec, path.empty() ? "model" : path);
  }

  const EpOptions options_;
};

class EpFactory : public OrtEpFactory {
 public:
  EpFactory() : OrtEpFactory{} {
    ort_version_supported = kEpVersion;
    GetName = [](const OrtEpFactory*) noexcept { return kEpName; };
    GetVendor = [](const OrtEpFactory*) noexcept { return "onnx_fp8"; };
    GetVendorId = [](const OrtEpFactory*) noexcept { return uint32_t{0}; };
    GetVersion = [](const OrtEpFactory*) noexcept { return ONNX_FP8_VERSION; };
    GetSupportedDevices = AddCpu;
    CreateEp = [](OrtEpFactory*, const OrtHardwareDevice* const*,
                  const OrtKeyValuePairs* const*, size_t,
                  const OrtSessionOptions* session, const OrtLogger*,
                  OrtEp** ep) noexcept {
      return Guarded([&] { *ep = new Ep(ReadEpOptions(session)); });
    };
    ReleaseEp = [](OrtEpFactory*, OrtEp* ep) noexcept {
      delete static_cast<Ep*>(ep);
    };
    // The runtime calls these two without looking whether they are there.
    CreateDataTransfer =
        [](OrtEpFactory*,
           OrtDataTransferImpl** transfer) noexcept -> OrtStatus* {
      *transfer = nullptr;
      return nullptr;
    };
    IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
  }

 private:
  static OrtStatus* AddCpu(OrtEpFactory* self,
                           const OrtHardwareDevice* const* devices,
                           size_t count, OrtEpDevice** ours, size_t most,
                           size_t* found) noexcept {
    return Guarded([&] {
      *found = 0;
      for (size_t i = 0; i < count && *found < most; ++i) {
        if (Ort().HardwareDevice_Type(devices[i]) !=
            OrtHardwareDeviceType_CPU) {
          continue;
        }
        Must(OrtEps().CreateEpDevice(self, devices[i], nullptr, nullptr,
                                     &ours[*found]));
        ++*found;
      }
    });
  }
};

}  // namespace

OrtEpFactory* MakeEpFactory() { return new EpFactory; }

void DeleteEpFactory(OrtEpFactory* factory) {
  delete static_cast<EpFactory*>(factory);
}

}  // namespace onnx_fp8
