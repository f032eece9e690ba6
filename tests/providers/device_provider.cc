// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/device_provider.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"

namespace onnx_fp8 {
namespace {

// A value for every byte: NaN as a float of 8, 16, 32 or 64 bits, -1 as an
// integer.
constexpr int kNan = 0xFF;

// The memory and the queue of work, shared with the deleters of memory.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  ~Engine() {
    for (auto [data, size] : blocks_) munmap(data, size);
    for (auto [data, size] : freed_) munmap(data, size);
  }

  // Dropped work frees memory, which puts more work into the queue.
  void Drop() {
    while (!work_.empty()) Next();
  }

  void* Allocate(size_t bytes) {
    size_t size = bytes + 1;
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Check(data != MAP_FAILED, "no memory for the test");
    std::memset(data, kNan, size);
    mprotect(data, size, PROT_NONE);
    blocks_.emplace(data, size);
    return data;
  }

  // Frees later: work that is already in the queue may use the memory.
  void Free(void* data) {
    Put([this, data] {
      auto block = blocks_.find(data);
      // The address stays reserved: a later read from it crashes.
      madvise(data, block->second, MADV_DONTNEED);
      mprotect(data, block->second, PROT_NONE);
      freed_.push_back(*block);
      blocks_.erase(block);
    });
  }

  void Put(std::function<void()> work) { work_.push_back(std::move(work)); }

  // Does all work. Errors: the first error of the work; the rest is then
  // dropped, except frees of memory.
  void Drain() {
    if (work_.empty()) return;
    Protect(PROT_READ | PROT_WRITE);
    std::exception_ptr error;
    while (!work_.empty()) {
      std::function<void()> work = Next();
      try {
        if (!error) work();
      } catch (...) {
        error = std::current_exception();
      }
    }
    Protect(PROT_NONE);
    if (error) std::rethrow_exception(error);
  }

 private:
  std::function<void()> Next() {
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    return work;
  }

  void Protect(int protection) {
    for (auto [data, size] : blocks_) mprotect(data, size, protection);
  }

  std::map<void*, size_t> blocks_;
  std::vector<std::pair<void*, size_t>> freed_;
  std::deque<std::function<void()>> work_;
};

// The same memory, marked as the host's for the CPU's kernels.
Tensor OnHost(const Tensor& t) {
  if (t.on_host()) return t;
  return Tensor::View(t.dtype(), t.shape(), nullptr,
                      const_cast<void*>(t.raw()));
}

std::vector<Tensor> OnHost(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> views;
  for (const Tensor& t : tensors) views.push_back(OnHost(t));
  return views;
}

// Replaces every kernel: puts the CPU's kernel into the queue. Errors: an
// operand lies on the host that the kernel does not read there.
void Launch(KernelContext& ctx) {
  std::vector<Tensor> inputs, outputs;
  const auto& on_host =
      CpuKernels().Find(ctx.node().domain, ctx.node().op)->traits.host_inputs;
  for (size_t i = 0; i < ctx.num_inputs(); ++i) {
    inputs.push_back(ctx.HasIn(i) ? ctx.In(i) : Tensor());
    if (!ctx.HasIn(i)) continue;
    bool wanted = std::ranges::find(on_host, i) != on_host.end();
    Check(ctx.In(i).on_host() == wanted, "[", ctx.Where(),
          "] expected operand ", i, wanted ? " on the host" : " on the device");
  }
  for (size_t i = 0; i < ctx.num_outputs(); ++i) {
    outputs.push_back(ctx.HasOut(i) ? ctx.Out(i) : Tensor());
  }
  std::vector<AmaxCell*> measured(ctx.measured().begin(), ctx.measured().end());
  auto work = [&node = ctx.node(), draw = ctx.draw(), known = ctx.KnownAmax(),
               inputs, outputs, measured] {
    std::vector<Tensor> in = OnHost(inputs), out = OnHost(outputs);
    KernelContext context(node, in, out, draw);
    context.SetAmaxes(known, measured);
    CpuKernels().Find(node.domain, node.op)->kernel(context);
  };
  static_cast<Engine*>(ctx.queue())->Put(std::move(work));
}

KernelRegistry LaunchedKernels() {
  KernelRegistry launched;
  for (const auto& [name, entry] : CpuKernels().entries()) {
    launched.Add(name.second, entry.kernel ? Launch : nullptr, entry.traits,
                 name.first);
  }
  return launched;
}

class DeviceProvider : public ExecutionProvider {
 public:
  ~DeviceProvider() override { engine_->Drop(); }

  std::string Name() const override { return "device"; }
  const KernelRegistry& Kernels() const override { return kernels_; }
  Device device() const override { return Device::kProvider; }
  void* queue() override { return engine_.get(); }

  std::shared_ptr<void> Allocate(size_t bytes) override {
    return {engine_->Allocate(bytes),
            [engine = engine_](void* data) { engine->Free(data); }};
  }
  void CopyIn(const Tensor& host, Tensor& ours) override {
    RequireOurs(ours);
    engine_->Put([from = host.Clone(), to = ours] { CopyBytes(from, to); });
  }
  void CopyOut(const Tensor& ours, Tensor& host) override {
    RequireOurs(ours);
    host.RequireHost();
    engine_->Put([from = ours, to = host] { CopyBytes(from, to); });
    engine_->Drain();
  }
  void Copy(const Tensor& from, Tensor& to) override {
    RequireOurs(from);
    RequireOurs(to);
    engine_->Put([from, to] { CopyBytes(from, to); });
  }
  void Clear(Tensor& ours) override {
    RequireOurs(ours);
    engine_->Put([to = ours] {
      std::memset(const_cast<void*>(to.raw()), 0, to.bytes());
    });
  }
  void Synchronize() override { engine_->Drain(); }

 private:
  static void RequireOurs(const Tensor& t) {
    Check(!t.on_host(), "expected a tensor of the device");
  }
  static void CopyBytes(const Tensor& from, const Tensor& to) {
    if (from.bytes() == 0) return;
    std::memcpy(const_cast<void*>(to.raw()), from.raw(), from.bytes());
  }

  std::shared_ptr<Engine> engine_ = std::make_shared<Engine>();
  KernelRegistry kernels_ = LaunchedKernels();
};

}  // namespace

std::unique_ptr<ExecutionProvider> MakeDeviceProvider() {
  return std::make_unique<DeviceProvider>();
}

}  // namespace onnx_fp8
