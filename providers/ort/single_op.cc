// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/single_op.h"

#include <cstring>
#include <memory>

#include "providers/ort/kernel_context.h"

namespace onnx_fp8 {
namespace {

// Operands and results of a body: "(a, b) => (y) { … }".
size_t CountNames(std::string_view body, size_t from) {
  size_t open = body.find('(', from), close = body.find(')', open);
  std::string_view list = body.substr(open + 1, close - open - 1);
  bool empty = list.find_first_not_of(" \n") == std::string_view::npos;
  return empty ? 0 : static_cast<size_t>(std::ranges::count(list, ',')) + 1;
}

// A graph of one node, whose attributes are set and whose inputs have types.
struct OneNode {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Node* node = nullptr;

  OneNode(const SingleOp& op, const std::string& name, Attributes attributes,
          const std::vector<DType>& dtypes,
          const std::vector<std::optional<Shape>>& shapes) {
    std::vector<Value*> inputs;
    std::vector<std::string> outputs;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      inputs.push_back(graph->AddInput(Concat("in", i), dtypes[i], shapes[i]));
    }
    for (size_t i = 0; i < op.num_outputs(); ++i) {
      outputs.push_back(Concat("out", i));
    }
    node = graph->AddNode(op.op().name, inputs, outputs, std::move(attributes),
                          kDomain);
    node->name = name;
    graph->outputs = node->outputs();
    graph->name = op.op().name;
  }
};

// ---- attributes

// Functions that take a buffer tell its size by an error.
template <typename Get>
std::string TextFrom(Get get) {
  size_t size = 0;
  Succeeds(get(nullptr, &size));
  std::string text(size, '\0');
  if (size > 0) Must(get(text.data(), &size));
  return text.c_str();
}

Attribute AttributeOf(const OrtKernelInfo* info,
                      const AttributeDefinition& attribute) {
  const char* name = attribute.name;
  switch (attribute.kind) {
    case AttributeKind::kInt: {
      int64_t value = 0;
      Must(Ort().KernelInfoGetAttribute_int64(info, name, &value));
      return value;
    }
    case AttributeKind::kFloat: {
      float value = 0;
      Must(Ort().KernelInfoGetAttribute_float(info, name, &value));
      return value;
    }
    case AttributeKind::kInts: {
      size_t size = 0;
      Succeeds(
          Ort().KernelInfoGetAttributeArray_int64(info, name, nullptr, &size));
      std::vector<int64_t> list(size);
      if (size > 0) {
        Must(Ort().KernelInfoGetAttributeArray_int64(info, name, list.data(),
                                                     &size));
      }
      return list;
    }
    case AttributeKind::kString:
      return TextFrom([&](char* out, size_t* size) {
        return Ort().KernelInfoGetAttribute_string(info, name, out, size);
      });
  }
  return std::monostate{};
}

Attribute AttributeOf(const OrtShapeInferContext* context,
                      const AttributeDefinition& definition) {
  const OrtOpAttr* attribute = nullptr;
  Must(Ort().ShapeInferContext_GetAttribute(context, definition.name,
                                            &attribute));
  switch (definition.kind) {
    case AttributeKind::kInt: {
      int64_t value = 0;
      size_t bytes = 0;
      Must(Ort().ReadOpAttr(attribute, ORT_OP_ATTR_INT, &value, sizeof value,
                            &bytes));
      return value;
    }
    case AttributeKind::kFloat: {
      float value = 0;
      size_t bytes = 0;
      Must(Ort().ReadOpAttr(attribute, ORT_OP_ATTR_FLOAT, &value, sizeof value,
                            &bytes));
      return value;
    }
    case AttributeKind::kInts: {
      std::string bytes = AttributeBytes(attribute, ORT_OP_ATTR_INTS);
      std::vector<int64_t> list(bytes.size() / sizeof(int64_t));
      std::memcpy(list.data(), bytes.data(), list.size() * sizeof(int64_t));
      return list;
    }
    case AttributeKind::kString:
      return AttributeBytes(attribute, ORT_OP_ATTR_STRING);
  }
  return std::monostate{};
}

template <typename Source>
Attributes AttributesOf(const SingleOp& op, const Source* source) {
  Attributes attributes;
  for (const AttributeDefinition& definition : op.op().attributes) {
    attributes[definition.name] = AttributeOf(source, definition);
  }
  return attributes;
}

// ---- the functions of the table

const SingleOp& Self(const OrtCustomOp* op) {
  return *static_cast<const SingleOp*>(op);
}

// A kernel of one node. The types of its operands are known when it is made.
struct SingleKernel {
  GraphRunner runner;
  std::vector<size_t> inputs;
};

DType InputType(const OrtKernelInfo* info, size_t i) {
  OrtTypeInfo* type = nullptr;
  Must(Ort().KernelInfo_GetInputTypeInfo(info, i, &type));
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  OrtStatus* status = Guarded([&] {
    Must(Ort().CastTypeInfoToTensorInfo(type, &tensor));
    if (tensor) Must(Ort().GetTensorElementType(tensor, &element));
  });
  Ort().ReleaseTypeInfo(type);
  Must(status);
  return DTypeOf(element, Concat("input ", i));
}

OrtStatus* CreateSingle(const OrtCustomOp* self, const OrtApi*,
                        const OrtKernelInfo* info, void** kernel) noexcept {
  return Guarded([&] {
    const SingleOp& op = Self(self);
    std::vector<DType> dtypes;
    std::vector<size_t> inputs;
    for (size_t i = 0; i < op.num_inputs(); ++i) {
      dtypes.push_back(InputType(info, i));
      inputs.push_back(i);
    }
    std::string name = TextFrom([&](char* out, size_t* size) {
      return Ort().KernelInfo_GetNodeName(info, out, size);
    });
    std::vector<std::optional<Shape>> unknown(dtypes.size());
    OneNode one(op, name, AttributesOf(op, info), dtypes, unknown);
    *kernel = new SingleKernel{GraphRunner(one.graph), std::move(inputs)};
  });
}

OrtStatus* ComputeSingle(void* kernel, OrtKernelContext* context) noexcept {
  return Guarded([&] {
    auto* single = static_cast<SingleKernel*>(kernel);
    RunInContext(single->runner, context, single->inputs, {});
  });
}

void SetOutput(OrtShapeInferContext* context, size_t i, const Value& value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  Must(Ort().CreateTensorTypeAndShapeInfo(&info));
  OrtStatus* status = Guarded([&] {
    Must(Ort().SetTensorElementType(info, ToRuntime(value.dtype)));
    if (value.shape) {
      Must(Ort().SetDimensions(info, value.shape->data(), value.shape->size()));
    }
    Must(Ort().ShapeInferContext_SetOutputTypeShape(context, i, info));
  });
  Ort().ReleaseTensorTypeAndShapeInfo(info);
  Must(status);
}

OrtStatus* InferSingle(const OrtCustomOp* self,
                       OrtShapeInferContext* context) noexcept {
  return Guarded([&] {
    const SingleOp& op = Self(self);
    std::vector<DType> dtypes;
    std::vector<std::optional<Shape>> shapes;
    for (size_t i = 0; i < op.num_inputs(); ++i) {
      OrtTensorTypeAndShapeInfo* info = nullptr;
      Must(Ort().ShapeInferContext_GetInputTypeShape(context, i, &info));
      ONNXTensorElementDataType type;
      size_t rank = 0;
      Must(Ort().GetTensorElementType(info, &type));
      Must(Ort().GetDimensionsCount(info, &rank));
      Shape shape(rank, -1);
      Must(Ort().GetDimensions(info, shape.data(), rank));
      dtypes.push_back(DTypeOf(type, Concat("input ", i)));
      shapes.emplace_back(std::move(shape));
    }
    OneNode one(op, "", AttributesOf(op, context), dtypes, shapes);
    op.op().infer(*one.node);
    for (size_t i = 0; i < op.num_outputs(); ++i) {
      SetOutput(context, i, *one.node->out(i));
    }
  });
}

}  // namespace

SingleOp::SingleOp(const OpDefinition& op)
    : OrtCustomOp{},
      op_(op),
      inputs_(CountNames(op.body, 0)),
      outputs_(CountNames(op.body, std::string_view(op.body).find("=>"))) {
  version = kCustomOpVersion;
  GetName = [](const OrtCustomOp* self) { return Self(self).op().name; };
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* {
    return nullptr;  // the CPU
  };
  GetInputTypeCount = [](const OrtCustomOp* self) {
    return Self(self).num_inputs();
  };
  GetOutputTypeCount = [](const OrtCustomOp* self) {
    return Self(self).num_outputs();
  };
  auto any_type = [](const OrtCustomOp*, size_t) {
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  };
  GetInputType = any_type;
  GetOutputType = any_type;
  auto required = [](const OrtCustomOp*, size_t) {
    return INPUT_OUTPUT_REQUIRED;
  };
  GetInputCharacteristic = required;
  // Nobody may read a result.
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t) {
    return INPUT_OUTPUT_OPTIONAL;
  };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) {
    return OrtMemTypeDefault;
  };
  auto one = [](const OrtCustomOp*) { return 1; };
  GetVariadicInputMinArity = one;
  GetVariadicInputHomogeneity = one;
  GetVariadicOutputMinArity = one;
  GetVariadicOutputHomogeneity = one;
  GetStartVersion = one;
  GetEndVersion = one;
  CreateKernelV2 = CreateSingle;
  KernelComputeV2 = ComputeSingle;
  KernelDestroy = [](void* kernel) {
    delete static_cast<SingleKernel*>(kernel);
  };
  InferOutputShapeFn = InferSingle;
}

}  // namespace onnx_fp8
