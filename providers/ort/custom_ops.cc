// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/custom_ops.h"

#include <algorithm>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/onnx/import_ort.h"
#include "graph/onnx/upgrade.h"
#include "graph/op_facts.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/ort/custom_op.h"
#include "providers/ort/kernel_context.h"
#include "providers/ort/single_op.h"
#include "providers/ort/tensor_facts.h"

namespace onnx_fp8 {
namespace {

// A custom op for an operator of onnxruntime-training's graphs that newer
// runtimes lack: its table of functions. The rows of graph/onnx/import_ort.cc
// compute it.
class TrainingOp : public CustomOp {
 public:
  struct Form {
    const char* op;
    size_t inputs;       // operands, optional ones included
    size_t needed;       // of them
    size_t outputs;      // results, optional ones included
    unsigned sizes = 0;  // a bit for each operand that decides shapes
    bool many_inputs = false, many_outputs = false;  // the last one repeats
    bool same_type = false;  // the first result has the first operand's type
    int integers = -1;       // the result of int64; -1: all are float
  };

  // `form` must outlive this.
  explicit TrainingOp(const Form& form);

  const Form& form() const { return form_; }

 private:
  const Form& form_;
};

using Form = TrainingOp::Form;

constexpr unsigned Bit(unsigned i) { return 1u << i; }

// Attributes that the rows read, by type.
constexpr const char* kInts[] = {"axis", "group", "ignore_index", "scale_down"};
constexpr const char* kFloats[] = {"alpha", "epsilon", "momentum"};
constexpr const char* kStrings[] = {"auto_pad", "reduction"};
constexpr const char* kLists[] = {"dilations", "pads", "strides"};

Attributes AttributesOf(const OrtKernelInfo* info) {
  Attributes attributes;
  for (const char* name : kInts) {
    int64_t value = 0;
    if (Succeeds(Ort().KernelInfoGetAttribute_int64(info, name, &value))) {
      attributes[name] = value;
    }
  }
  for (const char* name : kFloats) {
    float value = 0;
    if (Succeeds(Ort().KernelInfoGetAttribute_float(info, name, &value))) {
      attributes[name] = value;
    }
  }
  for (const char* name : kStrings) {
    std::string text = StringAttribute(info, name);
    if (!text.empty()) attributes[name] = text;
  }
  for (const char* name : kLists) {
    std::vector<int64_t> list = IntsAttribute(info, name);
    if (!list.empty()) attributes[name] = std::move(list);
  }
  return attributes;
}

// A kernel of one node. It makes a graph for each combination of types, shapes
// and values that decide shapes.
class TrainingKernel {
 public:
  TrainingKernel(const Form& form, std::string name, Attributes attributes)
      : form_(form),
        name_(std::move(name)),
        attributes_(std::move(attributes)) {}

  void Run(OrtKernelContext* context) {
    std::vector<Tensor> operands = OperandsOf(context);
    size_t outputs = 0;
    Must(Ort().KernelContext_GetOutputCount(context, &outputs));
    std::shared_ptr<GraphRunner> runner = Find(operands, outputs);
    std::vector<size_t> from;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].defined() && !DecidesShapes(i)) from.push_back(i);
    }
    RunInContext(*runner, context, from, {});
  }

 private:
  static constexpr size_t kMost = 8;

  bool DecidesShapes(size_t i) const {
    return i < 32 && (form_.sizes & Bit(static_cast<unsigned>(i))) != 0;
  }

  std::string Key(const std::vector<Tensor>& operands) const {
    std::string key;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Tensor& x = operands[i];
      key += x.defined() ? Concat(Name(x.dtype()), ToString(x.shape())) : "-";
      if (!x.defined() || !DecidesShapes(i)) continue;
      key.append(static_cast<const char*>(x.raw()), x.bytes());
    }
    return key;
  }

  std::shared_ptr<GraphRunner> Find(const std::vector<Tensor>& operands,
                                    size_t outputs) {
    std::string key = Key(operands);
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [known, runner] : made_) {
      if (known == key) return runner;
    }
    made_.emplace_front(key, Make(operands, outputs));
    if (made_.size() > kMost) made_.pop_back();
    return made_.front().second;
  }

  std::shared_ptr<GraphRunner> Make(const std::vector<Tensor>& operands,
                                    size_t outputs) const {
    auto graph = std::make_shared<Graph>();
    graph->name = form_.op;
    graph->file = "custom op";
    graph->opset = kNormalOpset;
    std::vector<Value*> inputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Tensor& x = operands[i];
      std::string name = Concat("in", i);
      inputs.push_back(!x.defined() ? nullptr
                       : DecidesShapes(i)
                           ? graph->AddInitializer(name, x.Clone())
                           : graph->AddInput(name, x.dtype(), x.shape()));
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < outputs; ++i) names.push_back(Concat("out", i));
    Node* node =
        graph->AddNode(form_.op, inputs, names, attributes_, kOrtDomain);
    node->name = name_;
    graph->outputs = node->outputs();
    ImportOrtOp(*graph, node);
    return std::make_shared<GraphRunner>(graph);
  }

  const Form& form_;
  std::string name_;
  Attributes attributes_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<GraphRunner>>> made_;
};

const Form& FormOf(const OrtCustomOp* op) {
  return static_cast<const TrainingOp*>(op)->form();
}

OrtStatus* CreateTraining(const OrtCustomOp* self, const OrtApi*,
                          const OrtKernelInfo* info, void** kernel) noexcept {
  return Guarded([&] {
    *kernel =
        new TrainingKernel(FormOf(self), NodeName(info), AttributesOf(info));
  });
}

int64_t AxisOf(const OrtShapeInferContext* context, int64_t rank) {
  const OrtOpAttr* attribute = nullptr;
  int64_t axis = 0;
  size_t bytes = 0;
  if (Succeeds(
          Ort().ShapeInferContext_GetAttribute(context, "axis", &attribute))) {
    Must(Ort().ReadOpAttr(attribute, ORT_OP_ATTR_INT, &axis, sizeof axis,
                          &bytes));
  }
  return axis < 0 ? axis + rank : axis;
}

// Type and shape of ConcatTraining's result.
OrtStatus* InferConcat(const OrtCustomOp*,
                       OrtShapeInferContext* context) noexcept {
  return Guarded([&] {
    size_t count = 0;
    Must(Ort().ShapeInferContext_GetInputCount(context, &count));
    TensorFacts whole = OperandFacts(context, 0);
    Shape& shape = *whole.shape;
    auto rank = static_cast<int64_t>(shape.size());
    auto axis = static_cast<size_t>(AxisOf(context, rank));
    for (size_t i = 1; i < count; ++i) {
      Shape part = *OperandFacts(context, i).shape;
      if (axis >= shape.size() || part.size() <= axis) return;
      int64_t& sum = shape[axis];
      sum = sum < 0 || part[axis] < 0 ? -1 : sum + part[axis];
    }
    SetResult(context, 0, whole);
  });
}

void Accumulate(OrtKernelContext* context) {
  std::vector<Tensor> operands = OperandsOf(context);
  bool complete = operands.size() >= 2 && operands[0].defined() &&
                  operands[1].defined() &&
                  operands[0].dtype() == DType::kFloat &&
                  operands[1].dtype() == DType::kFloat &&
                  operands[0].size() == operands[1].size();
  Check(complete,
        "[InPlaceAccumulatorV2] expected a buffer and a value of float and of "
        "one shape, got others");
  bool overwrites = operands.size() > 2 && operands[2].defined() &&
                    IntAt(operands[2], 0) != 0;
  float* buffer = operands[0].data<float>();
  const float* value = operands[1].data<float>();
  for (int64_t i = 0; i < operands[0].size(); ++i) {
    buffer[i] = overwrites ? value[i] : buffer[i] + value[i];
  }
  Tensor flag = ResultOf(context, 0, {1});
  if (flag.defined()) *flag.data<bool>() = true;
  Tensor sum = ResultOf(context, 1, operands[0].shape());
  if (sum.defined()) {
    std::copy_n(buffer, operands[0].size(), sum.data<float>());
  }
}

// The forms of all such operators, without InPlaceAccumulatorV2.
const std::vector<Form>& TrainingForms() {
  static const std::vector<Form> forms = {
      {"BatchNormInternal", 5, 5, 5},
      {"BatchNormalizationGrad", 5, 5, 3},
      {"BiasFastGeluGrad_dX", 3, 3, 1},
      {"BiasGeluGrad_dX", 3, 3, 1},
      {.op = "ConcatTraining",
       .inputs = 1,
       .needed = 1,
       .outputs = 2,
       .many_inputs = true,
       .same_type = true,
       .integers = 1},
      {"ConvGrad", 3, 3, 3},
      {"DropoutGrad", 4, 2, 1},
      {"FastGeluGrad", 3, 2, 1},
      {"GatherGrad", 3, 3, 1, Bit(0)},
      {"GeluGrad", 2, 2, 1},
      {"LayerNormalizationGrad", 5, 5, 3},
      {"LogSoftmaxGrad_13", 2, 2, 1},
      {"QuickGeluGrad", 2, 2, 1},
      {"ReluGrad", 2, 2, 1},
      {"Scale", 2, 2, 1},
      {"SigmoidGrad", 2, 2, 1},
      {"SimplifiedLayerNormalizationGrad", 4, 4, 2},
      {"SliceGrad", 6, 4, 1, Bit(1) | Bit(2) | Bit(3) | Bit(4) | Bit(5)},
      {"SoftmaxCrossEntropyLossGrad", 5, 3, 1},
      {"SoftmaxGrad_13", 2, 2, 1},
      {.op = "SplitTraining",
       .inputs = 2,
       .needed = 2,
       .outputs = 1,
       .sizes = Bit(1),
       .many_outputs = true},
      {"TanhGrad", 2, 2, 1},
  };
  return forms;
}

TrainingOp::TrainingOp(const Form& form) : form_(form) {
  GetName = [](const OrtCustomOp* self) { return FormOf(self).op; };
  GetInputTypeCount = [](const OrtCustomOp* self) {
    return FormOf(self).inputs;
  };
  GetOutputTypeCount = [](const OrtCustomOp* self) {
    return FormOf(self).outputs;
  };
  GetInputCharacteristic = [](const OrtCustomOp* self, size_t i) {
    const Form& form = FormOf(self);
    return form.many_inputs && i + 1 == form.inputs ? INPUT_OUTPUT_VARIADIC
           : i < form.needed                        ? INPUT_OUTPUT_REQUIRED
                                                    : INPUT_OUTPUT_OPTIONAL;
  };
  GetOutputCharacteristic = [](const OrtCustomOp* self, size_t i) {
    const Form& form = FormOf(self);
    return form.many_outputs && i + 1 == form.outputs ? INPUT_OUTPUT_VARIADIC
                                                      : INPUT_OUTPUT_OPTIONAL;
  };
  GetOutputType = [](const OrtCustomOp* self, size_t i) {
    const Form& form = FormOf(self);
    return static_cast<int>(i) == form.integers
               ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64
           : form.same_type && i == 0 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED
                                      : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  };
  CreateKernelV2 = CreateTraining;
  KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
    return Guarded([&] { static_cast<TrainingKernel*>(kernel)->Run(context); });
  };
  KernelDestroy = [](void* kernel) {
    delete static_cast<TrainingKernel*>(kernel);
  };
  if (form.same_type) InferOutputShapeFn = InferConcat;
}

// InPlaceAccumulatorV2: its first operand gets its own value plus the second
// one, or with a third operand of true the second one; float only.
struct AccumulatorOp : CustomOp {
  AccumulatorOp();
};

AccumulatorOp::AccumulatorOp() {
  GetName = [](const OrtCustomOp*) { return "InPlaceAccumulatorV2"; };
  GetInputTypeCount = [](const OrtCustomOp*) { return size_t{3}; };
  GetOutputTypeCount = [](const OrtCustomOp*) { return size_t{2}; };
  GetInputCharacteristic = [](const OrtCustomOp*, size_t i) {
    return i < 2 ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
  };
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t) {
    return INPUT_OUTPUT_OPTIONAL;
  };
  GetOutputType = [](const OrtCustomOp*, size_t i) {
    return i == 0 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL
                  : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  };
  CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*,
                      void** kernel) -> OrtStatus* {
    *kernel = nullptr;
    return nullptr;
  };
  KernelComputeV2 = [](void*, OrtKernelContext* context) {
    return Guarded([&] { Accumulate(context); });
  };
  KernelDestroy = [](void*) {};
}

// MaxPoolGrad of onnxruntime-training, in ONNX's own domain: each element of dy
// is added to the element of x that the pool chose. It reads the indices that
// MaxPool returned; the model says the shape of the result, batch and channels
// aside. Float only.
struct MaxPoolGradOp : CustomOp {
  MaxPoolGradOp();
};

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

// The last version with a training build, which has the operators of training
// itself: a session of that version would no longer see any other of their
// domain.
constexpr uint32_t kLastTraining = 19;

// The ops of one domain. The runtime keeps pointers to the tables as long as a
// session lives, so that they live as long as the process.
struct DomainOps {
  const char* domain;
  std::vector<const OrtCustomOp*> ops;
};

// All of ours that have a kernel on the CPU and need no other ranks.
std::vector<const OrtCustomOp*> OwnOps() {
  std::vector<const OrtCustomOp*> ops;
  for (const std::string& name : OpNames()) {
    const OpDefinition& op = *FindOp(name);
    bool alone = op.facts.kind != OpKind::kCollective;
    if (!alone || !CpuKernels().Find(kDomain, name)) continue;
    for (std::vector<DType>& results : ResultTypes(op)) {
      ops.push_back(new SingleOp(op, std::move(results)));
    }
  }
  return ops;
}

// Operators of onnxruntime-training that newer runtimes lack.
std::vector<const OrtCustomOp*> TrainingOps() {
  std::vector<const OrtCustomOp*> ops = {new AccumulatorOp};
  for (const TrainingOp::Form& form : TrainingForms()) {
    ops.push_back(new TrainingOp(form));
  }
  return ops;
}

const std::vector<const DomainOps*>& AllDomains() {
  static const DomainOps* own = new DomainOps{kDomain, OwnOps()};
  static const DomainOps* training = new DomainOps{kOrtDomain, TrainingOps()};
  // ONNX's own domain: a session then knows one operator of it more.
  static const DomainOps* onnx = new DomainOps{"", {new MaxPoolGradOp}};
  static const std::vector<const DomainOps*> domains = {own, training, onnx};
  return domains;
}

}  // namespace

// A session keeps a pointer to each domain.
void AddCustomOps(OrtSessionOptions* session) {
  static const auto* made = [] {
    auto* list = new std::vector<OrtCustomOpDomain*>;
    for (const DomainOps* ours : AllDomains()) {
      bool theirs = std::string_view(ours->domain) != kDomain;
      if (theirs && RuntimeVersion() <= kLastTraining) continue;
      OrtCustomOpDomain* domain = nullptr;
      Must(Ort().CreateCustomOpDomain(ours->domain, &domain));
      for (const OrtCustomOp* op : ours->ops) {
        Must(Ort().CustomOpDomain_Add(domain, op));
      }
      list->push_back(domain);
    }
    return list;
  }();
  for (OrtCustomOpDomain* domain : *made) {
    Must(Ort().AddCustomOpDomain(session, domain));
  }
}

}  // namespace onnx_fp8
