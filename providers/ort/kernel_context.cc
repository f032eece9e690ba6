// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/kernel_context.h"

#include <atomic>
#include <functional>

#include "providers/ort/tensor_facts.h"

namespace onnx_fp8 {
namespace {

// The intra-op pool of a session, while it calls us.
class SessionPool : public ParallelBackend {
 public:
  explicit SessionPool(const OrtKernelContext* context) : context_(context) {}

  void Run(int64_t n, int /*threads*/,
           const std::function<void(int64_t)>& task) override {
    auto call = [](void* data, size_t i) {
      (*static_cast<const std::function<void(int64_t)>*>(data))(
          static_cast<int64_t>(i));
    };
    Must(Ort().KernelContext_ParallelFor(
        context_, call, static_cast<size_t>(n), 0,
        const_cast<std::function<void(int64_t)>*>(&task)));
  }

 private:
  const OrtKernelContext* context_;
};

// Nodes that draw random values draw others in each run.
uint64_t NextDraw() {
  static std::atomic<uint64_t> draws = 0;
  return draws++;
}

}  // namespace

// The runtime numbers types as ONNX does up to 23, which is a 4-bit float.
// Headers before 1.27 do not have the others.
constexpr int kLastOfBoth = 23;
constexpr int kRuntimeE8M0 = 26;

DType FromRuntime(ONNXTensorElementDataType type) {
  const int number = static_cast<int>(type);
  if (number == kRuntimeE8M0) return DType::kE8M0;
  auto dtype = static_cast<DType>(number);
  bool ours = number <= kLastOfBoth && ByteSize(dtype) > 0;
  return ours ? dtype : DType::kUndefined;
}

ONNXTensorElementDataType ToRuntime(DType dtype) {
  return static_cast<ONNXTensorElementDataType>(
      dtype == DType::kE8M0 ? kRuntimeE8M0 : static_cast<int>(dtype));
}

DType DTypeOf(ONNXTensorElementDataType type, const std::string& who) {
  DType dtype = FromRuntime(type);
  Check(dtype != DType::kUndefined, "[", who,
        "] expected a tensor of numbers, got the data type ",
        static_cast<int>(type));
  return dtype;
}

Tensor ViewOf(const OrtValue& value, const std::string& who) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  Must(Ort().GetTensorTypeAndShape(&value, &info));
  TensorFacts facts;
  OrtStatus* status = Guarded([&] { facts = FactsOf(info); });
  Ort().ReleaseTensorTypeAndShapeInfo(info);
  Must(status);
  void* data = nullptr;
  Must(Ort().GetTensorMutableData(const_cast<OrtValue*>(&value), &data));
  return Tensor::View(DTypeOf(facts.type, who), *facts.shape, nullptr, data);
}

std::vector<Tensor> OperandsOf(const OrtKernelContext* context) {
  size_t count = 0;
  Must(Ort().KernelContext_GetInputCount(context, &count));
  std::vector<Tensor> operands(count);
  for (size_t i = 0; i < count; ++i) {
    const OrtValue* value = nullptr;
    Must(Ort().KernelContext_GetInput(context, i, &value));
    if (value) operands[i] = ViewOf(*value, Concat("operand ", i));
  }
  return operands;
}

Tensor ResultOf(OrtKernelContext* context, size_t i, const Shape& shape) {
  size_t count = 0;
  Must(Ort().KernelContext_GetOutputCount(context, &count));
  OrtValue* value = nullptr;
  if (i < count) {
    Must(Ort().KernelContext_GetOutput(context, i, shape.data(), shape.size(),
                                       &value));
  }
  return value ? ViewOf(*value, Concat("result ", i)) : Tensor();
}

void RunInContext(GraphRunner& runner, OrtKernelContext* context,
                  const std::vector<size_t>& from, const Threads& threads) {
  const Graph& graph = runner.graph();
  std::vector<Tensor> feeds;
  for (size_t i = 0; i < from.size(); ++i) {
    const OrtValue* value = nullptr;
    Must(Ort().KernelContext_GetInput(context, from[i], &value));
    const std::string& name = graph.inputs[i]->name;
    Check(value != nullptr, "[input ", name, "] expected a tensor, got none");
    feeds.push_back(ViewOf(*value, "input " + name));
  }
  SessionPool pool(context);
  ParallelScope scope(threads.own ? nullptr : &pool, threads.count);
  GraphRunner::Call call = runner.Prepare(feeds);
  std::vector<Tensor> results;
  for (size_t i = 0; i < call.num_results(); ++i) {
    Tensor result = ResultOf(context, i, call.shape(i));
    results.push_back(result.defined()
                          ? result
                          : Tensor::Allocate(call.dtype(i), call.shape(i)));
  }
  call.Run(results, NextDraw());
}

}  // namespace onnx_fp8
