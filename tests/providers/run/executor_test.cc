// SPDX-License-Identifier: Apache-2.0
#include "providers/run/executor.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/check.h"
#include "tests/graph/parse.h"
#include "tests/providers/toy.h"

namespace onnx_fp8 {
namespace {

Tensor U32(std::vector<uint32_t> values) {
  return Tensor::From<uint32_t>({static_cast<int64_t>(values.size())}, values);
}

class ExecutorTest : public testing::Test {
 protected:
  Executor Make(const std::string& text) {
    graph_ = ParseGraph(text);
    return Executor(graph_, *provider_);
  }
  // The message of Run, "" if there is none.
  std::string Complaint(Executor& executor, const TensorMap& feeds) {
    try {
      executor.Run(feeds, state_);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::unique_ptr<ExecutionProvider> provider_ = MakeToyProvider();
  std::shared_ptr<Graph> graph_;
  TensorMap state_;
};

constexpr char kUpdate[] = R"(
input x: uint32[2]
input unused: uint32[n]
input const lr: uint32[2] = {7,8}
const c: uint32[2] = {1,2}
state m: uint32[2] = {3,4}
param w: uint32[2] = {5,6}
m2: uint32[2] = Near(m, x)
y: uint32[2] = Hash(m, w, c, lr)
output y
update m = m2
)";

TEST_F(ExecutorTest, FeedsAreChecked) {
  Executor executor = Make(kUpdate);
  EXPECT_EQ(Complaint(executor, {}),
            "[input x] expected uint32[2], got no feed");
  EXPECT_EQ(Complaint(executor, {{"x", U32({1, 2, 3})}}),
            "[input x] expected uint32[2], got uint32[3]");
  EXPECT_EQ(Complaint(executor, {{"x", Tensor::Ints({1, 2})}}),
            "[input x] expected uint32[2], got int64[2]");
  EXPECT_EQ(Complaint(executor, {{"x", Tensor()}}),
            "[input x] expected uint32[2], got undefined[]");
  EXPECT_EQ(Complaint(executor, {{"lr", U32({1})}, {"x", U32({1, 2})}}),
            "[input lr] expected uint32[2], got uint32[1]");
  for (const char* name : {"y", "z", "m", "c"}) {
    EXPECT_EQ(Complaint(executor, {{name, U32({1, 2})}}),
              std::string("[feed ") + name +
                  "] expected the name of an input (x, unused, lr)");
  }
  EXPECT_TRUE(state_.empty());
  EXPECT_EQ(Complaint(executor, {{"x", U32({1, 2})}, {"unused", U32({1})}}),
            "");
}

TEST_F(ExecutorTest, AnInputWithADefaultMayBeFed) {
  Executor executor = Make(kUpdate);
  TensorMap feeds = {{"x", U32({1, 2})}};
  TensorMap s1, s2, s3;
  Tensor y = executor.Run(feeds, s1)["y"];
  feeds["lr"] = U32({7, 8});
  EXPECT_TRUE(Identical(executor.Run(feeds, s2)["y"], y));
  feeds["lr"] = U32({7, 9});
  EXPECT_FALSE(Identical(executor.Run(feeds, s3)["y"], y));
}

TEST_F(ExecutorTest, StateIsClonedOnceAndUpdatedInPlace) {
  Executor executor = Make(kUpdate);
  TensorMap feeds = {{"x", U32({1, 2})}};
  executor.Run(feeds, state_);
  ASSERT_EQ(state_.size(), 1u);
  void* memory = state_["m"].raw();
  Tensor m1 = state_["m"].Clone();
  executor.Run(feeds, state_);
  EXPECT_EQ(state_["m"].raw(), memory);
  EXPECT_FALSE(Identical(state_["m"], m1));
  EXPECT_EQ(graph_->Find("m")->data.values<uint32_t>()[0], 3u);
}

TEST_F(ExecutorTest, StateMapDecidesWhatIsRead) {
  Executor executor = Make(kUpdate);
  TensorMap feeds = {{"x", U32({1, 2})}};
  TensorMap empty, same = {{"m", U32({3, 4})}, {"w", U32({5, 6})}};
  Tensor y = executor.Run(feeds, empty)["y"];
  EXPECT_TRUE(Identical(executor.Run(feeds, same)["y"], y));
  // A parameter comes from the map although nothing here writes it; a constant
  // does not come from the map.
  TensorMap other_w = {{"w", U32({5, 7})}}, other_c = {{"c", U32({9, 9})}};
  EXPECT_FALSE(Identical(executor.Run(feeds, other_w)["y"], y));
  EXPECT_TRUE(Identical(executor.Run(feeds, other_c)["y"], y));
  EXPECT_TRUE(Identical(other_c["c"], U32({9, 9})));
}

TEST_F(ExecutorTest, StateIsChecked) {
  Executor executor = Make(kUpdate);
  state_["w"] = U32({1});
  EXPECT_EQ(Complaint(executor, {{"x", U32({1, 2})}}),
            "[state w] expected uint32[2], got uint32[1]");
  EXPECT_EQ(state_.size(), 1u);
}

// A session keeps its weights in one memory: as state and in the graph.
TEST_F(ExecutorTest, AnEntryMayShareTheInitializersMemory) {
  Executor executor = Make(kUpdate);
  state_["m"] = graph_->Find("m")->data;
  executor.Run({{"x", U32({1, 2})}}, state_);
  EXPECT_NE(graph_->Find("m")->data.values<uint32_t>()[0], 3u);
  EXPECT_TRUE(graph_->Find("m")->data.SharesDataWith(state_["m"]));
}

TEST_F(ExecutorTest, MemoryOfWrittenStateIsItsOwn) {
  Executor executor = Make(kUpdate);
  Tensor shared = U32({1, 2});
  state_["m"] = shared;
  EXPECT_EQ(Complaint(executor, {{"x", shared}}),
            "[input x] expected memory of its own, got that of a state that "
            "the step writes");
  state_["w"] = shared;
  EXPECT_EQ(Complaint(executor, {{"x", U32({1, 2})}}),
            "[state w] expected memory of its own, got that of a state that "
            "the step writes");
  Executor two = Make(R"(
state a: uint32[2]
state b: uint32[2]
a2: uint32[2] = Near(a)
b2: uint32[2] = Near(b)
update a = a2
update b = b2
)");
  state_ = {{"a", shared}, {"b", shared}};
  EXPECT_EQ(Complaint(two, {}),
            "[state b] expected memory of its own, got that of a");
}

TEST_F(ExecutorTest, OutputsStayValid) {
  Executor executor = Make(R"(
input x: uint32[2]
const c: uint32[2] = {1,2}
state m: uint32[2] = {3,4}
y: uint32[2] = Hash(x)
m2: uint32[2] = Near(m, y)
output x
output c
output m
output m2
output y
update m = m2
)");
  Tensor x = U32({5, 6});
  TensorMap first = executor.Run({{"x", x}}, state_);
  TensorMap copies;
  for (const auto& [name, tensor] : first) copies[name] = tensor.Clone();
  EXPECT_TRUE(Identical(first["x"], x));
  EXPECT_TRUE(Identical(first["c"], U32({1, 2})));
  EXPECT_TRUE(Identical(first["m"], U32({3, 4})));  // the old value
  EXPECT_TRUE(Identical(first["m2"], state_["m"]));
  first["c"].data<uint32_t>()[0] = 99;  // the caller's own memory
  first["m2"].data<uint32_t>()[0] = 99;
  first["x"].data<uint32_t>()[0] = 99;
  EXPECT_EQ(x.values<uint32_t>()[0], 5u);
  EXPECT_TRUE(Identical(state_["m"], copies["m2"]));
  TensorMap second = executor.Run({{"x", U32({7, 8})}}, state_);
  EXPECT_TRUE(Identical(second["c"], copies["c"]));
  EXPECT_TRUE(Identical(second["m"], copies["m2"]));
  EXPECT_TRUE(Identical(first["y"], copies["y"]));
}

TEST_F(ExecutorTest, KeepsNothingOfTheCallers) {
  Executor executor = Make(R"(
input x: uint32[2]
state m: uint32[2]
y: uint32[2] = Hash(x)
m2: uint32[2] = Near(m, y)
output y
update m = m2
)");
  Executor failing =
      Make("input x: uint32[2]\ny: uint32[2] = Throw(x)\noutput y");
  for (bool fails : {false, true}) {
    auto memory = std::make_shared<std::vector<uint32_t>>(4);
    std::weak_ptr<std::vector<uint32_t>> watch = memory;
    TensorMap feeds, state;
    feeds["x"] = Tensor::View(DType::kUInt32, {2}, memory, memory->data());
    state["m"] = Tensor::View(DType::kUInt32, {2}, memory, memory->data() + 2);
    if (fails) {
      EXPECT_THROW(failing.Run(feeds, state), Error);
    } else {
      executor.Run(feeds, state);
    }
    feeds.clear();
    state.clear();
    memory.reset();
    EXPECT_TRUE(watch.expired()) << fails;
  }
}

TEST_F(ExecutorTest, KernelErrorsNameTheNode) {
  Executor executor = Make("y: uint32[2] = Throw()  # /a/b\noutput y");
  EXPECT_EQ(Complaint(executor, {}), "[Throw /a/b] as asked");
  EXPECT_EQ(Complaint(executor, {}), "[Throw /a/b] as asked");
}

TEST_F(ExecutorTest, AnErrorBeforeTheFirstUpdateLeavesStateAsItWas) {
  Executor executor = Make(R"(
state m: uint32[2] = {3,4}
y: uint32[2] = Throw(m)
m2: uint32[2] = Near(m)
output y
update m = m2
)");
  EXPECT_EQ(Complaint(executor, {}), "[Throw -> y] as asked");
  EXPECT_EQ(Complaint(executor, {}), "[Throw -> y] as asked");
  EXPECT_TRUE(Identical(state_["m"], U32({3, 4})));
}

TEST_F(ExecutorTest, HalfUpdatedStateIsRefused) {
  Executor executor = Make(R"(
state m: uint32[2] = {3,4}
m2: uint32[2] = Near(m)
y: uint32[2] = Throw(m2)
output y
update m = m2
)");
  EXPECT_EQ(Complaint(executor, {}),
            "[Throw -> y] as asked; state is half updated by now and must be "
            "restored");
  EXPECT_TRUE(state_.contains(kHalfUpdated));
  Executor other = Make(kUpdate);
  EXPECT_EQ(Complaint(other, {{"x", U32({1, 2})}}),
            "expected state that is whole, got state that an earlier error "
            "left half updated: restore it first");
  state_.clear();
  EXPECT_EQ(Complaint(other, {{"x", U32({1, 2})}}), "");
}

TEST_F(ExecutorTest, AWriterThatFailsLeavesStateHalfUpdated) {
  Executor executor = Make(R"(
state m: uint32[2] = {3,4}
m2: uint32[2] = Break(m)
update m = m2
)");
  EXPECT_EQ(Complaint(executor, {}),
            "[Break -> m2] as asked; state is half updated by now and must be "
            "restored");
  EXPECT_FALSE(Identical(state_["m"], U32({3, 4})));
}

TEST_F(ExecutorTest, CopiedStateIsWholeAfterAnyError) {
  Executor executor = Make(R"(
state m: uint32[2] = {3,4}
m2: uint32[2] = Hash(m)
y: uint32[2] = Throw(m2)
output y
update m = m2
)");
  EXPECT_EQ(Complaint(executor, {}), "[Throw -> y] as asked");
  EXPECT_TRUE(Identical(state_["m"], U32({3, 4})));
}

// If a kernel returned other memory than the plan's, its result would be lost.
TEST(Executor, KernelsMustFillThePlansMemory) {
  class Provider : public ExecutionProvider {
   public:
    Provider() {
      kernels_.Add("Steal", [](KernelContext& ctx) { ctx.Out(0) = ctx.In(0); });
    }
    std::string Name() const override { return "steal"; }
    const KernelRegistry& Kernels() const override { return kernels_; }
    std::shared_ptr<void> Allocate(size_t bytes) override {
      return AllocateBytes(bytes);
    }
    void CopyIn(const Tensor&, Tensor&) override {}
    void CopyOut(const Tensor&, Tensor&) override {}
    void Copy(const Tensor&, Tensor&) override {}
    void Clear(Tensor&) override {}
    void Synchronize() override {}

   private:
    KernelRegistry kernels_;
  } provider;
  Executor executor(
      ParseGraph("input x: uint32[2]\ny: uint32[2] = Steal(x)\noutput y"),
      provider);
  TensorMap state;
  try {
    executor.Run({{"x", U32({1, 2})}}, state);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[Steal -> y] its kernel put output 0 into "
                 "memory that is not the plan's");
  }
}

// Touching memory after it was given back ends the process.
class Guarded : public ExecutionProvider {
 public:
  explicit Guarded(ExecutionProvider& toy) : toy_(toy) {}
  std::string Name() const override { return "guarded"; }
  const KernelRegistry& Kernels() const override { return toy_.Kernels(); }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    size_t size = bytes + 1;
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Check(data != MAP_FAILED, "no memory for the test");
    return {data, [size](void* p) { mprotect(p, size, PROT_NONE); }};
  }
  void CopyIn(const Tensor& host, Tensor& ours) override {
    toy_.CopyIn(host, ours);
  }
  void CopyOut(const Tensor& ours, Tensor& host) override {
    toy_.CopyOut(ours, host);
  }
  void Copy(const Tensor& from, Tensor& to) override { toy_.Copy(from, to); }
  void Clear(Tensor& ours) override { toy_.Clear(ours); }
  void Synchronize() override {}

 private:
  ExecutionProvider& toy_;
};

// The second plan moves the arena after the first plan has run in it.
TEST_F(ExecutorTest, ExecutorsTakeTurnsInOneArena) {
  Guarded guarded(*provider_);
  auto graph = [](int64_t n) {
    std::string type = Concat(": uint32[", n, "] = Hash(");
    return ParseGraph(Concat("input x: uint32[", n, "]\na", type, "x)\nb", type,
                             "a)\nc", type, "b, a)\ny", type,
                             "c, a)\noutput y"));
  };
  auto arena = std::make_shared<SharedArena>(guarded);
  std::vector<Executor> shared, own;
  size_t most = 0;
  for (int round = 0; round < 3; ++round) {
    for (int64_t n : {8, 500, 100}) {
      TensorMap feeds = {{"x", Tensor::Zeros(DType::kUInt32, {n})}};
      feeds["x"].data<uint32_t>()[n - 1] = static_cast<uint32_t>(round);
      size_t i = n == 8 ? 0 : n == 500 ? 1 : 2;
      if (round == 0) {
        shared.emplace_back(graph(n), guarded, arena);
        own.emplace_back(graph(n), *provider_);
        most = std::max(most, shared.back().plan().arena_bytes);
      }
      EXPECT_TRUE(Identical(shared[i].Run(feeds, state_)["y"],
                            own[i].Run(feeds, state_)["y"]));
      EXPECT_EQ(arena->bytes(), most);
    }
  }
  EXPECT_GT(most, 500u * 4);
}

TEST_F(ExecutorTest, EmptyTensorsAndEmptyGraphs) {
  Executor empty = Make("");
  EXPECT_TRUE(empty.Run({}, state_).empty());
  Executor executor = Make(R"(
input x: uint32[0]
state m: uint32[0,3]
y: uint32[0] = Near(x)
z: uint32[1] = Hash(y)
m2: uint32[0,3] = Near(m)
output y
output z
update m = m2
)");
  TensorMap outputs =
      executor.Run({{"x", Tensor::Zeros(DType::kUInt32, {0})}}, state_);
  EXPECT_EQ(outputs["y"].shape(), Shape{0});
  EXPECT_EQ(outputs["z"].size(), 1);
}

TEST_F(ExecutorTest, ProfilerSeesEveryStepOfEveryRun) {
  Executor executor = Make(kUpdate);
  Profiler profiler;
  executor.Run({{"x", U32({1, 2})}}, state_);
  executor.set_profiler(&profiler);
  executor.Run({{"x", U32({1, 2})}}, state_);
  executor.Run({{"x", U32({1, 2})}}, state_);
  EXPECT_EQ(profiler.size(), 4u);
}

}  // namespace
}  // namespace onnx_fp8
