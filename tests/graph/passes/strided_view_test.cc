// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/strided_view.h"

#include <gtest/gtest.h>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

using Axes = std::vector<StridedAxis>;

// The view of value `y` in a graph with input x (4,6,10) and the nodes.
struct Found {
  std::shared_ptr<Graph> graph;
  StridedView view;
};

Found ViewIn(const std::string& nodes) {
  Found found;
  found.graph = ParseGraph("graph \"g\" opset 24\ninput x: float[4,6,10]\n" +
                           nodes + "output y\n");
  found.view = StridedViews().Of(found.graph->outputs[0]);
  return found;
}

void ExpectView(const std::string& nodes, const std::string& root,
                int64_t first, const Axes& axes) {
  Found found = ViewIn(nodes);
  EXPECT_EQ(found.view.root->name, root) << nodes;
  EXPECT_EQ(found.view.first, first) << nodes;
  EXPECT_EQ(found.view.axes, axes) << nodes;
}

TEST(StridedView, Transposes) {
  ExpectView("y: float[10,4,6] = Transpose<perm=[2,0,1]>(x)\n", "x", 0,
             {{10, 1}, {4, 60}, {6, 10}});
  ExpectView("y: float[10,6,4] = Transpose(x)\n", "x", 0,
             {{10, 1}, {6, 10}, {4, 60}});
  ExpectView(R"(a: float[6,4,10] = Transpose<perm=[1,0,2]>(x)
y: float[10,6,4] = Transpose<perm=[2,0,1]>(a)
)",
             "x", 0, {{10, 1}, {6, 10}, {4, 60}});
}

TEST(StridedView, Reshapes) {
  ExpectView(R"(const s: int64[4] = {2,12,5,2}
y: float[2,12,5,2] = Reshape(x, s)
)",
             "x", 0, {{2, 120}, {12, 10}, {5, 2}, {2, 1}});
  // Rows that lie apart can be divided, not joined.
  ExpectView(R"(const s: int64[4] = {2,3,4,10}
a: float[6,4,10] = Transpose<perm=[1,0,2]>(x)
y: float[2,3,4,10] = Reshape(a, s)
)",
             "x", 0, {{2, 30}, {3, 10}, {4, 60}, {10, 1}});
  ExpectView(R"(const s: int64[2] = {24,10}
a: float[6,4,10] = Transpose<perm=[1,0,2]>(x)
y: float[24,10] = Reshape(a, s)
)",
             "y", 0, {{24, 10}, {10, 1}});
  // A joined axis that is divided again.
  ExpectView(R"(const s: int64[2] = {24,10}
const t: int64[3] = {6,4,10}
a: float[6,4,10] = Transpose<perm=[1,0,2]>(x)
b: float[24,10] = Reshape(a, s)
y: float[6,4,10] = Reshape(b, t)
)",
             "x", 0, {{6, 10}, {4, 60}, {10, 1}});
  // Neither 3 nor 8 rows are whole rows of the 6 and 4.
  ExpectView(R"(const s: int64[3] = {3,8,10}
a: float[6,4,10] = Transpose<perm=[1,0,2]>(x)
y: float[3,8,10] = Reshape(a, s)
)",
             "y", 0, {{3, 80}, {8, 10}, {10, 1}});
}

TEST(StridedView, AxesOfOneElement) {
  ExpectView(R"(const a: int64[2] = {0,-1}
y: float[1,4,6,10,1] = Unsqueeze(x, a)
)",
             "x", 0, {{1, 0}, {4, 60}, {6, 10}, {10, 1}, {1, 0}});
}

TEST(StridedView, Slices) {
  ExpectView(R"(const from: int64[2] = {-5,1}
const to: int64[2] = {100,-1}
const axes: int64[2] = {1,-1}
y: float[4,5,8] = Slice(x, from, to, axes)
)",
             "x", 11, {{4, 60}, {5, 10}, {8, 1}});
  ExpectView(R"(const from: int64[1] = {0}
const to: int64[1] = {10}
const axes: int64[1] = {2}
const steps: int64[1] = {2}
y: float[4,6,5] = Slice(x, from, to, axes, steps)
)",
             "y", 0, {{4, 30}, {6, 5}, {5, 1}});
  // A slice of an axis that has two strides.
  ExpectView(R"(const s: int64[2] = {24,10}
const from: int64[1] = {4}
const to: int64[1] = {8}
a: float[6,4,10] = Transpose<perm=[1,0,2]>(x)
b: float[24,10] = Reshape(a, s)
y: float[4,10] = Slice(b, from, to)
)",
             "y", 0, {{4, 10}, {10, 1}});
  ExpectView(R"(const s: int64[2] = {24,10}
const t: int64[3] = {1,4,10}
const from: int64[1] = {4}
const to: int64[1] = {8}
a: float[6,4,10] = Transpose<perm=[1,0,2]>(x)
b: float[24,10] = Reshape(a, s)
c: float[4,10] = Slice(b, from, to)
y: float[1,4,10] = Reshape(c, t)
)",
             "c", 0, {{1, 0}, {4, 10}, {10, 1}});
}

TEST(StridedView, Splits) {
  ExpectView(R"(const parts: int64[3] = {1,2,3}
a: float[4,1,10], b: float[4,2,10], y: float[4,3,10] = Split<axis=-2>(x, parts)
)",
             "x", 30, {{4, 60}, {3, 10}, {10, 1}});
}

TEST(StridedView, GathersOfOneIndex) {
  ExpectView(R"(const i: int64[] = {-2}
y: float[4,10] = Gather<axis=1>(x, i)
)",
             "x", 40, {{4, 60}, {10, 1}});
  ExpectView(R"(const i: int64[1] = {2}
y: float[4,6,1] = Gather<axis=-1>(x, i)
)",
             "x", 2, {{4, 60}, {6, 10}, {1, 0}});
  ExpectView(R"(const i: int64[2] = {2,3}
y: float[2,6,10] = Gather(x, i)
)",
             "y", 0, {{2, 60}, {6, 10}, {10, 1}});
}

TEST(StridedView, OtherNodesAreRoots) {
  ExpectView(R"(a: float[4,6,10] = Neg(x)
y: float[6,4,10] = Transpose<perm=[1,0,2]>(a)
)",
             "a", 0, {{6, 10}, {4, 60}, {10, 1}});
}

}  // namespace
}  // namespace onnx_fp8
