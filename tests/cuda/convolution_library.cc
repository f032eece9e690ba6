// SPDX-License-Identifier: Apache-2.0
//
// A library for convolutions on the emulated device, in place of cuDNN. It adds
// floats one by one, rounds once, and reports what a caller may not ask.
#include "tests/cuda/convolution_library.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/cublaslt_numbers.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::cuda {
namespace {

using emulation::Report;

bool library_exists = true;
std::vector<ConvolutionProblem> convolutions;

constexpr size_t kWorkspace = 1000;

// ---- rules ------------------------------------------------------------------

// Elements from the first to behind the last one.
int64_t Extent(const ConvolutionTensor& x) {
  int64_t extent = 1;
  for (size_t axis = 0; axis < x.sizes.size(); ++axis) {
    extent += (x.sizes[axis] - 1) * x.strides[axis];
  }
  return extent;
}

bool HasElements(const ConvolutionTensor& x, size_t axes) {
  return x.sizes.size() == axes && x.strides.size() == axes &&
         std::ranges::all_of(x.sizes, [](int64_t n) { return n > 0; }) &&
         std::ranges::all_of(x.strides, [](int64_t n) { return n > 0; });
}

// Positions of y along an axis of space.
int64_t Positions(const ConvolutionProblem& p, size_t axis) {
  int64_t window = (p.weight.sizes[axis + 2] - 1) * p.dilation[axis] + 1;
  int64_t room = p.x.sizes[axis + 2] + p.pad[axis] + p.pad_end[axis] - window;
  return room < 0 ? 0 : room / p.stride[axis] + 1;
}

// cuDNN writes gradients of weights so, whatever strides they shall have.
bool IsPacked(const ConvolutionTensor& x) {
  int64_t stride = 1;
  for (size_t axis = x.sizes.size(); axis-- > 0; stride *= x.sizes[axis]) {
    if (x.strides[axis] != stride) return false;
  }
  return true;
}

const char* MistakeIn(const ConvolutionProblem& p) {
  size_t space = p.stride.size();
  if (space < 2 || space > 3) return "axes of space";
  for (const ConvolutionTensor* x : {&p.x, &p.weight, &p.y}) {
    if (!HasElements(*x, space + 2)) return "a tensor";
  }
  int64_t c = p.x.sizes[1], m = p.weight.sizes[0], per = p.weight.sizes[1];
  if (c % per != 0 || m % (c / per) != 0) return "groups";
  if (p.pass == ConvolutionPass::kWeightGradient && !IsPacked(p.weight)) {
    return "a gradient of a weight that is not packed";
  }
  if (p.y.sizes[0] != p.x.sizes[0] || p.y.sizes[1] != m) return "channels";
  for (size_t axis = 0; axis < space; ++axis) {
    if (p.stride[axis] < 1 || p.dilation[axis] < 1) return "a stride";
    if (p.pad[axis] < 0 || p.pad_end[axis] < 0) return "a pad";
    if (Positions(p, axis) != p.y.sizes[axis + 2]) return "positions";
  }
  return nullptr;
}

size_t SizeOf(Storage storage) { return storage == Storage::kFloat ? 4 : 2; }

cudaDataType TypeOf(Storage storage) {
  return storage == Storage::kFloat      ? CUDA_R_32F
         : storage == Storage::kBFloat16 ? CUDA_R_16BF
                                         : CUDA_R_16F;
}

void NeedReachable(const char* what, const void* p, size_t bytes) {
  if (emulation::AddressOf(p) % 16 != 0) {
    Report("convolution: ", what, " is not aligned to 16 bytes");
  }
  if (emulation::Reachable(p, bytes)) return;
  Report("convolution: ", what, ", ", bytes, " bytes, is ",
         emulation::Describe(p));
  emulation::Fault(cudaErrorIllegalAddress);
}

// ---- numbers ----------------------------------------------------------------

int64_t PlaceOf(const ConvolutionTensor& x, const std::vector<int64_t>& at) {
  int64_t place = 0;
  for (size_t axis = 0; axis < at.size(); ++axis) {
    place += at[axis] * x.strides[axis];
  }
  return place;
}

// The next index; false behind the last one.
bool Next(const std::vector<int64_t>& sizes, std::vector<int64_t>& at) {
  for (size_t axis = sizes.size(); axis-- > 0;) {
    if (++at[axis] < sizes[axis]) return true;
    at[axis] = 0;
  }
  return false;
}

// Calls product(place in x, place in the weight, place in y) for each product
// of the sums.
template <typename F>
void ForEachProduct(const ConvolutionProblem& p, F product) {
  size_t space = p.stride.size();
  int64_t groups = p.x.sizes[1] / p.weight.sizes[1];
  int64_t of_group = p.weight.sizes[0] / groups;
  std::vector<int64_t> y(space + 2), w(space + 2), x(space + 2);
  do {  // over y
    std::ranges::fill(w, 0);
    std::vector<int64_t> taps(p.weight.sizes.begin() + 1, p.weight.sizes.end());
    std::vector<int64_t> tap(space + 1);
    do {
      x[0] = y[0];
      x[1] = y[1] / of_group * p.weight.sizes[1] + tap[0];
      w[0] = y[1];
      std::ranges::copy(tap, w.begin() + 1);
      bool exists = true;
      for (size_t a = 0; a < space; ++a) {
        int64_t at =
            y[a + 2] * p.stride[a] + tap[a + 1] * p.dilation[a] - p.pad[a];
        exists = exists && at >= 0 && at < p.x.sizes[a + 2];
        x[a + 2] = at;
      }
      if (exists) {
        product(PlaceOf(p.x, x), PlaceOf(p.weight, w), PlaceOf(p.y, y));
      }
    } while (Next(taps, tap));
  } while (Next(p.y.sizes, y));
}

const ConvolutionTensor& ResultOf(const ConvolutionProblem& p) {
  switch (p.pass) {
    case ConvolutionPass::kForward:
      return p.y;
    case ConvolutionPass::kInputGradient:
      return p.x;
    default:
      return p.weight;
  }
}

void RunConvolution(const ConvolutionProblem& p, const ConvolutionMemory& m,
                    void* workspace) {
  size_t size = SizeOf(p.storage);
  auto bytes = [size](const ConvolutionTensor& x) {
    return static_cast<size_t>(Extent(x)) * size;
  };
  NeedReachable("x", m.x, bytes(p.x));
  NeedReachable("the weight", m.weight, bytes(p.weight));
  NeedReachable("y", m.y, bytes(p.y));
  NeedReachable("the workspace", workspace, kWorkspace);
  std::memset(workspace, 0xFF, kWorkspace);
  cudaDataType type = TypeOf(p.storage);
  std::vector<float> sums(static_cast<size_t>(Extent(ResultOf(p))));
  auto get = [type](const void* from, int64_t i) {
    return emulation::LoadFloat(from, type, i);
  };
  ForEachProduct(p, [&](int64_t x, int64_t w, int64_t y) {
    if (p.pass == ConvolutionPass::kForward) {
      sums[static_cast<size_t>(y)] += get(m.x, x) * get(m.weight, w);
    } else if (p.pass == ConvolutionPass::kInputGradient) {
      sums[static_cast<size_t>(x)] += get(m.y, y) * get(m.weight, w);
    } else {
      sums[static_cast<size_t>(w)] += get(m.y, y) * get(m.x, x);
    }
  });
  void* to = p.pass == ConvolutionPass::kForward         ? m.y
             : p.pass == ConvolutionPass::kInputGradient ? m.x
                                                         : m.weight;
  std::vector<int64_t> at(ResultOf(p).sizes.size());
  do {
    int64_t place = PlaceOf(ResultOf(p), at);
    emulation::StoreFloat(to, type, place, sums[static_cast<size_t>(place)]);
  } while (Next(ResultOf(p).sizes, at));
}

}  // namespace

void SetConvolutionLibrary(bool exists) { library_exists = exists; }

std::vector<ConvolutionProblem> TakeConvolutions() {
  return std::exchange(convolutions, {});
}

struct ConvolutionLibrary::State {
  bool exists = library_exists;
  std::set<ConvolutionProblem> plans;
};

ConvolutionLibrary::ConvolutionLibrary() : state_(std::make_unique<State>()) {}
ConvolutionLibrary::~ConvolutionLibrary() = default;

std::optional<size_t> ConvolutionLibrary::Workspace(
    const ConvolutionProblem& p) {
  if (!state_->exists) return std::nullopt;
  if (const char* mistake = MistakeIn(p)) Report("convolution: ", mistake);
  state_->plans.insert(p);
  return kWorkspace;
}

void ConvolutionLibrary::Run(const ConvolutionProblem& p,
                             const ConvolutionMemory& m, void* workspace,
                             cudaStream_t stream) {
  emulation::ApiCall call("convolution");
  if (!state_->plans.contains(p)) Report("convolution: no plan was made");
  if (emulation::AddressOf(workspace) % 256 != 0) {
    Report("convolution: a workspace that is not aligned to 256 bytes");
  }
  convolutions.push_back(p);
  emulation::Enqueue(
      stream, {.what = "a convolution by a library",
               .type = cudaGraphNodeTypeKernel,
               .run = [p, m, workspace] { RunConvolution(p, m, workspace); }});
}

}  // namespace onnx_fp8::cuda
