// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "providers/ops/attention_sizes.h"

namespace onnx_fp8 {

// Registers our Attention ops and their gradients. Kernels::Run(ctx, in) runs a
// node whose operands have the places `in`. If there is a
// Kernels::Workspace(ctx, in), it returns the bytes of the node's workspace.
template <typename Kernels>
class AttentionOps {
 public:
  static void Register(KernelRegistry& r) {
    Add<kAttentionPlain>(r, "Attention");
    Add<kAttentionBias>(r, "AttentionBias");
    Add<kAttentionRelative>(r, "AttentionRelative");
    Add<kAttentionPacked>(r, "AttentionPacked");
    Add<kAttentionPackedBias>(r, "AttentionPackedBias");
    Add<kAttentionSegments>(r, "AttentionSegments");
    Add<kAttentionPackedSegments>(r, "AttentionPackedSegments");
  }

 private:
  template <AttentionInputs kForward>
  static void Add(KernelRegistry& r, const std::string& op) {
    AddOne<kForward>(r, op, {0});
    AddOne<kForward.Backward()>(r, op + "Grad", kForward.Gradients());
  }

  // `results`: measured, and kept narrow.
  template <AttentionInputs kIn>
  static void AddOne(KernelRegistry& r, const std::string& op,
                     const std::vector<size_t>& results) {
    KernelTraits traits{.measures = results,
                        .narrow_in = kIn.KeptNarrow(),
                        .narrow_out = results};
    if constexpr (requires(KernelContext & ctx) {
                    Kernels::Workspace(ctx, kIn);
                  }) {
      traits.workspace = [](KernelContext& ctx) {
        return Kernels::Workspace(ctx, kIn);
      };
    }
    r.Add(
        op, [](KernelContext& ctx) { Kernels::Run(ctx, kIn); },
        std::move(traits), kDomain);
  }
};

}  // namespace onnx_fp8
