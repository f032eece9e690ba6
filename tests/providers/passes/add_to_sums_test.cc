// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/add_to_sums.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/print.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/expand_missing.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
#include "tests/providers/after_pass.h"
#include "tests/providers/cpu/random_feeds.h"

namespace onnx_fp8 {
namespace {

KernelRegistry WithAddingKernels() {
  KernelRegistry kernels;
  auto add = [&](const char* domain, const char* op, int addend) {
    kernels.Add(
        op, [](KernelContext&) {}, {.in_place = {{addend, 0}}}, domain);
  };
  add("", "Gemm", 2);
  add(kDomain, "ScaledMatMulAdd", 4);
  add(kDomain, "ScaledMatMulPaddedAdd", 4);
  add(kDomain, "ScaledMatMulBlockAdd", 4);
  return kernels;
}

std::string Added(const std::string& text, const KernelRegistry& kernels) {
  return AfterPass(text, AddToSums, kernels);
}

void ExpectNothingAdded(const std::string& text) {
  EXPECT_EQ(Added(text, WithAddingKernels()), text);
}

constexpr char kSums[] = R"(input a: float[5,3]
input b: float[5,4]
input qa: float8e4m3fn[16,48]
input qb: float8e4m3fn[32,48]
input s: float[]
input rows: float[16,1]
input columns: float[32,1]
sum s1: float[3,4]
sum s2: float[16,32]
sum s3: float[15,30]
sum s4: float[16,32]
d1: float[3,4] = Gemm<alpha=0.5, transA=1>(a, b)
d2: float[16,32] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(qa, s, qb, s)
d3: float[15,30] = onnx_fp8.ScaledMatMulPadded<shape=[15,30]>(qa, s, qb, s)
d4: float[16,32] = onnx_fp8.ScaledMatMulBlock<a_block_columns=0, a_block_rows=1, b_block_columns=0, b_block_rows=1, transA=0, transB=1>(qa, rows, qb, columns)
n1: float[3,4] = Add(s1, d1)
n2: float[16,32] = Add(s2, d2)
n3: float[15,30] = Add(s3, d3)
n4: float[16,32] = Add(s4, d4)
update s1 = n1
update s2 = n2
update s3 = n3
update s4 = n4
)";

TEST(AddToSums, ProductsAddThemselves) {
  std::string text = Added(kSums, WithAddingKernels());
  EXPECT_EQ(text.substr(text.find("n1:")),
            R"(n1: float[3,4] = Gemm<alpha=0.5, beta=1.0, transA=1>(a, b, s1)
n2: float[16,32] = onnx_fp8.ScaledMatMulAdd<transA=0, transB=1>(qa, s, qb, s, s2)
n3: float[15,30] = onnx_fp8.ScaledMatMulPaddedAdd<shape=[15,30]>(qa, s, qb, s, s3)
n4: float[16,32] = onnx_fp8.ScaledMatMulBlockAdd<a_block_columns=0, a_block_rows=1, b_block_columns=0, b_block_rows=1, transA=0, transB=1>(qa, rows, qb, columns, s4)
update s1 = n1
update s2 = n2
update s3 = n3
update s4 = n4
)");
}

// Operands are padded for GPUs only.
TEST(AddToSums, TheCpuHasAllKernelsButThatOfPaddedOperands) {
  std::string text = Added(kSums, CpuKernels());
  EXPECT_EQ(text.substr(text.find("n1:"), text.find("n4:") - text.find("n1:")),
            R"(n1: float[3,4] = Gemm<alpha=0.5, beta=1.0, transA=1>(a, b, s1)
n2: float[16,32] = onnx_fp8.ScaledMatMulAdd<transA=0, transB=1>(qa, s, qb, s, s2)
d3: float[15,30] = onnx_fp8.ScaledMatMulPadded<shape=[15,30]>(qa, s, qb, s)
)");
  EXPECT_NE(text.find("n3: float[15,30] = Add(s3, d3)\n"), std::string::npos);
  EXPECT_EQ(Added(kSums, {}), kSums);
}

constexpr char kOneSum[] = R"(input a: float[3,5]
input b: float[5,4]
sum s: float[3,4]
d: float[3,4] = Gemm(a, b)
n: float[3,4] = Add(s, d)
update s = n
)";

TEST(AddToSums, AGradientThatIsReadElsewhereStays) {
  std::string text = kOneSum;
  EXPECT_NE(Added(text, WithAddingKernels()), text);
  text.insert(text.find("update"), "output d\n");
  ExpectNothingAdded(text);
  text = kOneSum;
  text.insert(text.find("update"), "r: float[3,4] = Relu(d)\noutput r\n");
  ExpectNothingAdded(text);
}

TEST(AddToSums, AProductThatAddsAlreadyStays) {
  std::string text = kOneSum;
  text.replace(text.find("Gemm(a, b)"), 10, "Gemm(a, b, c)");
  text.insert(0, "input c: float[4]\n");
  ExpectNothingAdded(text);
}

TEST(AddToSums, OtherStateDoesNotCount) {
  std::string text = kOneSum;
  text.replace(text.find("sum s:"), 6, "moment s:");
  ExpectNothingAdded(text);
}

// What is kept in 16 bits is rounded before it is added, or after.
TEST(AddToSums, RoundedNumbersStay) {
  for (const char* name : {"d", "n", "s"}) {
    auto graph = ParseGraph(kOneSum);
    graph->Find(name)->narrow = DType::kBFloat16;
    std::string before = Print(*graph);
    AddToSums(*graph, WithAddingKernels());
    EXPECT_EQ(Print(*graph), before) << name;
  }
}

// The gradients of a weight that two chunks and a table share.
constexpr char kShared[] = R"(input a: float[3,5]
input b: float[5,4]
input c: float[3,6]
input d: float[6,4]
input i: int64[2]
input g: float[2,4]
p: float[3,4] = Gemm(a, b)
q: float[3,4] = Gemm(c, d)
pq: float[3,4] = Add(p, q)
t: float[3,4] = onnx_fp8.GatherGrad<axis=0, shape=[3,4]>(g, i)
all: float[3,4] = Add(pq, t)
output all
)";

TEST(AddToSums, ProductsAddWhatIsThereBefore) {
  std::string after = Added(kShared, WithAddingKernels());
  EXPECT_EQ(after.substr(after.find("p:")), R"(p: float[3,4] = Gemm(a, b)
pq: float[3,4] = Gemm<beta=1.0>(c, d, p)
t: float[3,4] = onnx_fp8.GatherGrad<axis=0, shape=[3,4]>(g, i)
all: float[3,4] = Add(pq, t)
output all
)");
  // The order of the operands does not matter.
  std::string text = kShared;
  text.replace(text.find("Add(p, q)"), 9, "Add(q, p)");
  EXPECT_EQ(Added(text, WithAddingKernels()), after);
}

TEST(AddToSums, ProductsDoNotWait) {
  ExpectNothingAdded(R"(input a: float[3,5]
input b: float[5,4]
input x: float[3,4]
p: float[3,4] = Gemm(a, b)
r: float[3,4] = Relu(x)
y: float[3,4] = Add(r, p)
output y
)");
}

TEST(AddToSums, ProductsTooDeepForTheKernelStay) {
  KernelRegistry kernels;
  kernels.Add("Gemm", [](KernelContext&) {},
              {.in_place = {{2, 0}}, .adds_depth = 5});
  EXPECT_NE(Added(kOneSum, kernels), kOneSum);
  auto with = [](std::string text, const std::string& a, const char* node) {
    text.replace(text.find("float[3,5]"), 10, a);
    text.replace(text.find("float[5,4]"), 10, "float[6,4]");
    text.replace(text.find("Gemm"), 4, node);
    return text;
  };
  for (const std::string& deep :
       {with(kOneSum, "float[3,6]", "Gemm"),
        with(kOneSum, "float[6,3]", "Gemm<transA=1>")}) {
    EXPECT_EQ(Added(deep, kernels), deep);
  }
}

TEST(AddToSums, RowsThatAreRepeatedStay) {
  ExpectNothingAdded(R"(input a: float[3,5]
input b: float[5,4]
input x: float[4]
r: float[4] = Relu(x)
p: float[3,4] = Gemm(a, b)
y: float[3,4] = Add(p, r)
output y
)");
}

// The sums that the CPU computes; `bodies`: ops that it runs by their bodies.
TensorMap Next(std::shared_ptr<Graph> graph, const TensorMap& feeds,
               TensorMap state, const std::set<std::string>& bodies = {}) {
  auto evaluator = MakeCpuEvaluator();
  ExpandMissing(*graph, CpuKernels(), bodies, evaluator.get());
  auto cpu = MakeCpuProvider();
  Executor executor(graph, *cpu);
  executor.Run(feeds, state);
  return state;
}

// The bits equal the Adds'.
TEST(AddToSums, KernelsAndBodiesAddTheSame) {
  std::shared_ptr<Graph> apart = ParseGraph(kSums);
  TensorMap feeds = RandomFeeds(*apart, {}), state;
  for (const char* sum : {"s1", "s2", "s3", "s4"}) {
    const Shape& shape = *apart->Find(sum)->shape;
    std::vector<float> values(static_cast<size_t>(NumElements(shape)), 1.5f);
    state[sum] = Tensor::From<float>(shape, values);
  }
  auto copy = [&] {
    TensorMap of_added;
    for (const auto& [name, tensor] : state) of_added[name] = tensor.Clone();
    return of_added;
  };
  TensorMap want = Next(apart, feeds, copy());
  for (const std::set<std::string>& bodies :
       {std::set<std::string>{}, {"ScaledMatMulAdd", "ScaledMatMulBlockAdd"}}) {
    std::shared_ptr<Graph> added = ParseGraph(kSums);
    AddToSums(*added, WithAddingKernels());
    TensorMap got = Next(added, feeds, copy(), bodies);
    for (const char* sum : {"s1", "s2", "s3", "s4"}) {
      EXPECT_TRUE(Identical(got.at(sum), want.at(sum))) << sum;
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
