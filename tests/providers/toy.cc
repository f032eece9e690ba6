// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/toy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/random.h"

namespace onnx_fp8 {
namespace {

uint64_t Get(const Tensor& t, int64_t i) {
  return t.dtype() == DType::kUInt32 ? t.data<uint32_t>()[i]
                                     : t.data<uint64_t>()[i];
}

void Set(Tensor& t, int64_t i, uint64_t x) {
  if (t.dtype() == DType::kUInt32) {
    t.data<uint32_t>()[i] = static_cast<uint32_t>(x);
  } else {
    t.data<uint64_t>()[i] = x;
  }
}

// Covers all elements of an operand.
uint64_t Digest(const Tensor& t) {
  uint64_t digest = 1;
  for (int64_t i = 0; i < t.size(); ++i) {
    digest = RandomBits(digest, Get(t, i));
  }
  return digest;
}

void Hash(KernelContext& ctx) {
  for (size_t o = 0; o < ctx.num_outputs(); ++o) {
    if (!ctx.HasOut(o)) continue;
    for (int64_t i = 0; i < ctx.Out(o).size(); ++i) {
      uint64_t x = o + 1;
      for (size_t in = 0; in < ctx.num_inputs(); ++in) {
        if (ctx.HasIn(in)) x = RandomBits(x, Digest(ctx.In(in)));
      }
      Set(ctx.Out(o), i, RandomBits(x, static_cast<uint64_t>(i)));
    }
  }
}

// y[i] from element i of the operands of y's size and all elements of the
// others. The others are read after each write of y.
void Elementwise(KernelContext& ctx, const std::vector<size_t>& near,
                 size_t o) {
  Tensor& y = ctx.Out(o);
  for (int64_t i = 0; i < y.size(); ++i) {
    uint64_t x = RandomBits(o, static_cast<uint64_t>(i));
    for (size_t in = 0; in < ctx.num_inputs(); ++in) {
      if (!ctx.HasIn(in)) continue;
      bool is_near = std::ranges::find(near, in) != near.end() &&
                     ctx.In(in).size() == y.size();
      x = RandomBits(x, is_near ? Get(ctx.In(in), i) : Digest(ctx.In(in)));
    }
    Set(y, i, x);
  }
}

constexpr size_t kWorkspace = 100;

void Work(KernelContext& ctx) {
  void* workspace = ctx.Workspace(kWorkspace);
  std::memset(workspace, 0x5A, kWorkspace);
  Hash(ctx);
  std::memset(workspace, 0x3C, kWorkspace);
}

void Near(KernelContext& ctx) { Elementwise(ctx, {0, 1}, 0); }

void Update(KernelContext& ctx) {
  // Both results need element i of p and of m.
  Tensor p = ctx.In(0).Clone(), m = ctx.In(2).Clone();
  for (size_t o = 0; o < 2; ++o) {
    if (!ctx.HasOut(o)) continue;
    for (int64_t i = 0; i < ctx.Out(o).size(); ++i) {
      uint64_t x = RandomBits(Get(p, i), Get(m, i) + o);
      Set(ctx.Out(o), i, RandomBits(x, Digest(ctx.In(1))));
    }
  }
}

void Twins(KernelContext& ctx) {
  for (int64_t i = 0; i < ctx.In(0).size(); ++i) {
    uint64_t x = Get(ctx.In(0), i);
    for (size_t o = 0; o < 2; ++o) Set(ctx.Out(o), i, RandomBits(x, o));
  }
}

void Throw(KernelContext&) { throw std::runtime_error("as asked"); }

void Break(KernelContext& ctx) {
  Set(ctx.Out(0), 0, ~Get(ctx.In(0), 0));
  throw std::runtime_error("as asked");
}

// The last one first: no node may depend on another one.
template <Kernel kKernel>
void Many(std::span<KernelContext> nodes) {
  for (size_t i = nodes.size(); i-- > 0;) kKernel(nodes[i]);
}

class ToyProvider : public ExecutionProvider {
 public:
  explicit ToyProvider(bool together) {
    kernels_.Add("View", nullptr, {.view = true});
    Add<Hash>("Hash", {}, together);
    Add<Work>("Work", {.workspace = [](KernelContext&) { return kWorkspace; }},
              together);
    Add<Near>("Near", {.in_place = {{0, 0}, {1, 0}}}, together);
    Add<Update>("Update", {.in_place = {{0, 0}, {2, 1}}}, together);
    Add<Twins>("Twins", {.in_place = {{0, 0}, {0, 1}}}, together);
    Add<Hash>("Sized", {.host_inputs = {1}}, together);
    Add<Throw>("Throw", {}, together);
    Add<Break>("Break", {.in_place = {{0, 0}}}, together);
  }
  std::string Name() const override { return "toy"; }
  const KernelRegistry& Kernels() const override { return kernels_; }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    size_t size = (bytes + 64) / 64 * 64;
    void* data = std::aligned_alloc(64, size);
    std::memset(data, 0xA5, size);
    return std::shared_ptr<void>(data, std::free);
  }
  void CopyIn(const Tensor& host, Tensor& ours) override { Copy(host, ours); }
  void CopyOut(const Tensor& ours, Tensor& host) override { Copy(ours, host); }
  void Copy(const Tensor& from, Tensor& to) override {
    if (from.bytes() > 0) std::memcpy(to.raw(), from.raw(), from.bytes());
  }
  void Clear(Tensor& ours) override {
    std::memset(ours.raw(), 0, ours.bytes());
  }
  void Synchronize() override {}

 private:
  template <Kernel kKernel>
  void Add(const char* op, KernelTraits traits, bool together) {
    if (together) traits.many = Many<kKernel>;
    kernels_.Add(op, kKernel, std::move(traits));
  }

  KernelRegistry kernels_;
};

// A stream of numbers from one seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  size_t Below(size_t n) { return RandomBelow(seed_, count_++, n); }
  template <typename T>
  const T& Pick(const std::vector<T>& list) {
    return list[Below(list.size())];
  }

 private:
  uint64_t seed_, count_ = 0;
};

const std::vector<Shape> kShapes = {{4}, {2, 2}, {}, {40}, {5, 8}, {0, 3}};

class RandomGraphMaker {
 public:
  RandomGraphMaker(Graph& graph, uint64_t seed) : graph_(graph), dice_(seed) {}

  void Run(int nodes) {
    AddSources();
    for (int i = 0; i < nodes; ++i) AddNode("v" + std::to_string(i));
    for (Value* state : states_) {
      std::vector<Value*> fits;
      for (Value* value : values_) {
        if (value->dtype == state->dtype && value->shape == state->shape) {
          fits.push_back(value);
        }
      }
      if (dice_.Below(8) > 0) graph_.state.push_back({state, Recent(fits)});
    }
    for (size_t i = 1 + dice_.Below(4); i > 0; --i) {
      Value* value = dice_.Below(2) ? Recent(values_) : dice_.Pick(values_);
      if (std::ranges::find(graph_.outputs, value) == graph_.outputs.end()) {
        graph_.outputs.push_back(value);
      }
    }
  }

 private:
  DType Type() { return dice_.Below(3) ? DType::kUInt32 : DType::kUInt64; }

  // Usually one of the last few values.
  Value* Recent(const std::vector<Value*>& list) {
    size_t n = list.size();
    return list[n - 1 -
                dice_.Below(dice_.Below(4) ? std::min<size_t>(n, 4) : n)];
  }

  void AddSources() {
    for (size_t i = dice_.Below(3) + 1; i > 0; --i) {
      values_.push_back(graph_.AddInput("x" + std::to_string(i), Type(),
                                        dice_.Pick(kShapes)));
    }
    for (size_t i = dice_.Below(7); i > 0; --i) {
      Value* value =
          graph_.AddInitializer("s" + std::to_string(i),
                                RandomTensor(Type(), dice_.Pick(kShapes), i));
      bool state = dice_.Below(4) > 0;
      value->role = state ? Role::kMoment : Role::kNone;
      if (state) states_.push_back(value);
      values_.push_back(value);
    }
  }

  Value* Like(Value* value, DType dtype, const Shape& shape) {
    value->dtype = dtype;
    value->shape = shape;
    values_.push_back(value);
    return value;
  }

  Shape SameSize(const Shape& shape) {
    std::vector<Shape> fits;
    for (const Shape& other : kShapes) {
      if (NumElements(other) == NumElements(shape)) fits.push_back(other);
    }
    return dice_.Pick(fits);
  }

  void AddNode(const std::string& name) {
    Value* x = Recent(values_);
    switch (dice_.Below(6)) {
      case 0: {
        Node* node = graph_.AddNode("View", {x}, {name});
        Like(node->out(0), x->dtype, SameSize(*x->shape));
        break;
      }
      case 1: {
        std::vector<Value*> inputs = {x, nullptr, Recent(values_)};
        const char* op = values_.size() % 2 == 0 ? "Hash" : "Work";
        Node* node = graph_.AddNode(op, inputs, {name, "", name + "b"});
        Like(node->out(0), Type(), dice_.Pick(kShapes));
        Like(node->out(2), Type(), dice_.Pick(kShapes));
        break;
      }
      case 2: {
        std::vector<Value*> same = {x};
        for (size_t i = values_.size() - std::min<size_t>(values_.size(), 99);
             i < values_.size(); ++i) {
          if (values_[i]->dtype == x->dtype && values_[i]->shape == x->shape) {
            same.push_back(values_[i]);
          }
        }
        Value* m = Recent(same);
        Node* node = graph_.AddNode("Update", {x, Recent(values_), m},
                                    {name, name + "m"});
        // The outputs share memory with p and m only if the sizes are equal.
        Like(node->out(0), x->dtype, *x->shape);
        Like(node->out(1), m->dtype, *m->shape);
        break;
      }
      case 3: {
        Node* node = graph_.AddNode("Twins", {x}, {name, name + "t"});
        Like(node->out(0), x->dtype, *x->shape);
        Like(node->out(1), x->dtype, *x->shape);
        break;
      }
      default: {
        Node* node = graph_.AddNode(
            "Near", {x, Recent(values_), dice_.Pick(values_)}, {name});
        Like(node->out(0), x->dtype, SameSize(*x->shape));
        break;
      }
    }
  }

  Graph& graph_;
  Dice dice_;
  std::vector<Value*> values_, states_;
};

}  // namespace

std::unique_ptr<ExecutionProvider> MakeToyProvider(bool together) {
  return std::make_unique<ToyProvider>(together);
}

Tensor RandomTensor(DType dtype, const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::Allocate(dtype, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    Set(t, i, RandomBits(seed, static_cast<uint64_t>(i)));
  }
  return t;
}

std::unique_ptr<Graph> RandomGraph(uint64_t seed, int nodes) {
  auto graph = std::make_unique<Graph>();
  RandomGraphMaker(*graph, seed).Run(nodes);
  return graph;
}

TensorMap RunNaively(const Graph& graph, const KernelRegistry& kernels,
                     const TensorMap& feeds, TensorMap& state) {
  TensorMap values = feeds;
  for (const Value* value : graph.Initializers()) {
    auto it = state.find(value->name);
    values[value->name] =
        it != state.end() ? it->second.Clone() : value->data.Clone();
  }
  for (const Node& node : graph.nodes()) {
    std::vector<Tensor> inputs, outputs;
    for (const Value* value : node.inputs()) {
      inputs.push_back(value ? values.at(value->name).Clone() : Tensor());
    }
    for (const Value* value : node.outputs()) {
      outputs.push_back(value ? Tensor::Allocate(value->dtype, *value->shape)
                              : Tensor());
    }
    const KernelEntry* entry = kernels.Find(node.domain, node.op);
    if (entry->traits.view) {
      outputs[0] = inputs[0].Reshaped(*node.out(0)->shape);
    } else {
      KernelContext context(node, inputs, outputs);
      Tensor workspace;
      if (entry->traits.workspace) {
        auto bytes = static_cast<int64_t>(entry->traits.workspace(context));
        workspace = Tensor::Allocate(DType::kUInt8, {bytes});
      }
      context.set_workspace(workspace);
      entry->kernel(context);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.out(i)) values[node.out(i)->name] = outputs[i];
    }
  }
  for (const StateBinding& binding : graph.state) {
    state[binding.state->name] = values.at(binding.next->name).Clone();
  }
  TensorMap outputs;
  for (const Value* value : graph.outputs) {
    outputs[value->name] = values.at(value->name).Clone();
  }
  return outputs;
}

}  // namespace onnx_fp8
