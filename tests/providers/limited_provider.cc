// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/limited_provider.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tests/support/forwarding_provider.h"

namespace onnx_fp8 {
namespace {

class LimitedProvider : public ForwardingProvider {
 public:
  LimitedProvider(std::unique_ptr<ExecutionProvider> provider,
                  const KernelRegistry& kernels,
                  std::shared_ptr<MemoryAccount> account)
      : ForwardingProvider(std::move(provider)),
        all_kernels_(kernels),
        account_(std::move(account)) {}

  const KernelRegistry& Kernels() const override { return all_kernels_; }

  std::shared_ptr<void> Allocate(size_t bytes) override {
    MemoryAccount& account = *account_;
    Check(bytes <= account.limit - account.used, "out of memory: ", bytes,
          " bytes, with ", account.used, " of ", account.limit, " in use");
    std::shared_ptr<void> memory = ForwardingProvider::Allocate(bytes);
    account.used += bytes;
    account.most_used = std::max(account.most_used, account.used);
    void* data = memory.get();
    return {data, [memory = std::move(memory), account = account_,
                   bytes](void*) { account->used -= bytes; }};
  }

 private:
  const KernelRegistry& all_kernels_;  // the other provider's
  std::shared_ptr<MemoryAccount> account_;
};

}  // namespace

std::unique_ptr<ExecutionProvider> MakeLimitedProvider(
    std::unique_ptr<ExecutionProvider> provider,
    std::shared_ptr<MemoryAccount> account) {
  const KernelRegistry& kernels = provider->Kernels();
  return std::make_unique<LimitedProvider>(std::move(provider), kernels,
                                           std::move(account));
}

}  // namespace onnx_fp8
