// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/max_pool_grad.h"

#include <algorithm>
#include <limits>
#include <string>

#include "providers/ort/kernel_context.h"
#include "providers/ort/kernel_info.h"
#include "providers/ort/tensor_facts.h"

namespace onnx_fp8 {
namespace {

struct PoolGrad {
  std::string where;
  Shape x;  // in the model

  void Run(OrtKernelContext* context) const {
    std::vector<Tensor> operands = OperandsOf(context);
    const Tensor &dy = operands[0], &indices = operands[1];
    Check(dy.dtype() == DType::kFloat && indices.dtype() == DType::kInt64 &&
              dy.shape() == indices.shape() && dy.rank() >= 3,
          "[", where,
          "] expected floats of rank 3 or more and int64 indices "
          "of one shape, got ",
          Name(dy.dtype()), ToString(dy.shape()), " and ",
          Name(indices.dtype()), ToString(indices.shape()));
    Tensor dx = ResultOf(context, 0, ShapeFor(dy.shape()));
    if (!dx.defined()) return;
    auto* sums = dx.data<float>();
    std::fill_n(sums, dx.size(), 0.0f);
    for (int64_t i = 0; i < dy.size(); ++i) {
      int64_t to = indices.data<int64_t>()[i];
      Check(to >= 0 && to < dx.size(), "[", where,
            "] expected indices of MaxPool below ", dx.size(), ", got ", to);
      sums[to] += dy.data<float>()[i];
    }
  }

 private:
  Shape ShapeFor(const Shape& dy) const {
    Shape shape = x;
    bool known = x.size() == dy.size() &&
                 std::all_of(x.begin() + 2, x.end(),
                             [](int64_t size) { return size >= 0; });
    Check(known, "[", where,
          "] expected a model that says the spatial sizes of the result, got ",
          ToString(x));
    std::copy_n(dy.begin(), 2, shape.begin());
    return shape;
  }
};

}  // namespace

MaxPoolGradOp::MaxPoolGradOp() {
  GetName = [](const OrtCustomOp*) { return "MaxPoolGrad"; };
  // For every opset.
  GetEndVersion = [](const OrtCustomOp*) {
    return std::numeric_limits<int>::max();
  };
  GetInputTypeCount = [](const OrtCustomOp*) { return size_t{2}; };
  GetOutputTypeCount = [](const OrtCustomOp*) { return size_t{1}; };
  GetInputCharacteristic = [](const OrtCustomOp*, size_t) {
    return INPUT_OUTPUT_REQUIRED;
  };
  GetOutputCharacteristic = GetInputCharacteristic;
  GetOutputType = [](const OrtCustomOp*, size_t) {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  };
  CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*,
                      const OrtKernelInfo* info, void** kernel) {
    return Guarded([&] {
      Shape x = ResultFacts(info, 0).shape.value_or(Shape{});
      *kernel = new PoolGrad{"MaxPoolGrad " + NodeName(info), std::move(x)};
    });
  };
  KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
    return Guarded([&] { static_cast<PoolGrad*>(kernel)->Run(context); });
  };
  KernelDestroy = [](void* kernel) { delete static_cast<PoolGrad*>(kernel); };
}

}  // namespace onnx_fp8
