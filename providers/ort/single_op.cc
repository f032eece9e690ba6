// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/single_op.h"

#include <cstring>
#include <memory>

#include "providers/ort/custom_op.h"
#include "providers/ort/kernel_context.h"
#include "providers/ort/tensor_facts.h"

namespace onnx_fp8 {
namespace {

// Operands and results of a body: "(a, b) => (y) { … }".
size_t CountNames(std::string_view body, size_t from) {
  size_t open = body.find('(', from), close = body.find(')', open);
  std::string_view list = body.substr(open + 1, close - open - 1);
  bool empty = list.find_first_not_of(" \n") == std::string_view::npos;
  return empty ? 0 : static_cast<size_t>(std::ranges::count(list, ',')) + 1;
}

size_t CountInputs(const OpDefinition& op) { return CountNames(op.body, 0); }

size_t CountResults(const OpDefinition& op) {
  return CountNames(op.body, std::string_view(op.body).find("=>"));
}

// A graph of one node, whose attributes are set and whose inputs have types.
struct OneNode {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Node* node = nullptr;

  OneNode(const OpDefinition& op, const std::string& name,
          Attributes attributes, const std::vector<DType>& dtypes,
          const std::vector<std::optional<Shape>>& shapes) {
    std::vector<Value*> inputs;
    std::vector<std::string> outputs;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      inputs.push_back(graph->AddInput(Concat("in", i), dtypes[i], shapes[i]));
    }
    for (size_t i = 0; i < CountResults(op); ++i) {
      outputs.push_back(Concat("out", i));
    }
    node = graph->AddNode(op.name, inputs, outputs, std::move(attributes),
                          kDomain);
    node->name = name;
    graph->outputs = node->outputs();
    graph->name = op.name;
  }
};

// ---- dtypes of results

// Dtypes of a node whose FP8 results have type `to`, or whose correction has
// the first or the second type of one; kUndefined where the operands decide.
// Empty: all operands do.
std::vector<DType> InferredTypes(const OpDefinition& op, DType to,
                                 DType scale_to) {
  Attributes attributes;
  for (const AttributeDefinition& definition : op.attributes) {
    std::string name = definition.name;
    if (name == "to") {
      attributes[name] = static_cast<int64_t>(to);
    } else if (name == "correction") {
      attributes[name] = static_cast<int64_t>(
          to == DType::kE4M3 ? DType::kInt8 : DType::kInt16);
    } else if (name == "scale_to") {
      attributes[name] = static_cast<int64_t>(scale_to);
    } else if (name == "pow2" && scale_to == DType::kE8M0) {
      attributes[name] = int64_t{1};
    } else if (definition.kind == AttributeKind::kInt) {
      attributes[name] = int64_t{0};
    } else if (definition.kind == AttributeKind::kFloat) {
      attributes[name] = 1.0f;
    }
  }
  size_t inputs = CountInputs(op);
  try {
    OneNode one(op, "", std::move(attributes),
                std::vector<DType>(inputs, DType::kUndefined),
                std::vector<std::optional<Shape>>(inputs));
    op.infer(*one.node);
    std::vector<DType> dtypes;
    for (const Value* value : one.node->outputs()) {
      dtypes.push_back(value->dtype);
    }
    return dtypes;
  } catch (const Error&) {
    return {};
  }
}

// ---- attributes

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
    case AttributeKind::kInts:
      return IntsAttribute(info, name);
    case AttributeKind::kString:
      return StringAttribute(info, name);
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

OrtStatus* CreateSingle(const OrtCustomOp* self, const OrtApi*,
                        const OrtKernelInfo* info, void** kernel) noexcept {
  return Guarded([&] {
    const SingleOp& op = Self(self);
    std::vector<DType> dtypes;
    std::vector<size_t> inputs;
    for (size_t i = 0; i < op.num_inputs(); ++i) {
      TensorFacts operand = OperandFacts(info, i);
      dtypes.push_back(DTypeOf(operand.type, Concat("input ", i)));
      inputs.push_back(i);
    }
    std::vector<std::optional<Shape>> unknown(dtypes.size());
    OneNode one(op.op(), NodeName(info), AttributesOf(op, info), dtypes,
                unknown);
    *kernel = new SingleKernel{GraphRunner(one.graph), std::move(inputs)};
  });
}

OrtStatus* ComputeSingle(void* kernel, OrtKernelContext* context) noexcept {
  return Guarded([&] {
    auto* single = static_cast<SingleKernel*>(kernel);
    RunInContext(single->runner, context, single->inputs, {});
  });
}

OrtStatus* InferSingle(const OrtCustomOp* self,
                       OrtShapeInferContext* context) noexcept {
  return Guarded([&] {
    const SingleOp& op = Self(self);
    std::vector<DType> dtypes;
    std::vector<std::optional<Shape>> shapes;
    for (size_t i = 0; i < op.num_inputs(); ++i) {
      TensorFacts operand = OperandFacts(context, i);
      dtypes.push_back(DTypeOf(operand.type, Concat("input ", i)));
      shapes.push_back(std::move(operand.shape));
    }
    OneNode one(op.op(), "", AttributesOf(op, context), dtypes, shapes);
    op.op().infer(*one.node);
    for (size_t i = 0; i < op.results().size(); ++i) {
      const Value& result = *one.node->out(i);
      SetResult(context, i, {ToRuntime(result.dtype), result.shape});
    }
  });
}

}  // namespace

std::vector<std::vector<DType>> ResultTypes(const OpDefinition& op) {
  std::vector<std::vector<DType>> lists;
  for (DType operand :
       {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16}) {
    for (DType to : {DType::kE4M3, DType::kE5M2}) {
      for (DType scale_to : {DType::kFloat, DType::kE8M0}) {
        // Most ops say what their results are, whatever the operands are. Of
        // the others, results have the dtype of the floats.
        std::vector<DType> list = InferredTypes(op, to, scale_to);
        list.resize(CountResults(op), DType::kUndefined);
        std::ranges::replace(list, DType::kUndefined, operand);
        bool added = std::ranges::find(lists, list) != lists.end();
        bool possible = std::ranges::count(list, DType::kE8M0) == 0 ||
                        RuntimeVersion() >= kE8M0Version;
        if (!added && possible) lists.push_back(std::move(list));
      }
    }
  }
  return lists;
}

SingleOp::SingleOp(const OpDefinition& op, std::vector<DType> results)
    : op_(op), inputs_(CountInputs(op)), results_(std::move(results)) {
  GetName = [](const OrtCustomOp* self) { return Self(self).op().name; };
  GetInputTypeCount = [](const OrtCustomOp* self) {
    return Self(self).num_inputs();
  };
  GetOutputTypeCount = [](const OrtCustomOp* self) {
    return Self(self).results().size();
  };
  GetOutputType = [](const OrtCustomOp* self, size_t i) {
    return ToRuntime(Self(self).results()[i]);
  };
  GetInputCharacteristic = [](const OrtCustomOp*, size_t) {
    return INPUT_OUTPUT_REQUIRED;
  };
  // Nobody may read a result.
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t) {
    return INPUT_OUTPUT_OPTIONAL;
  };
  CreateKernelV2 = CreateSingle;
  KernelComputeV2 = ComputeSingle;
  KernelDestroy = [](void* kernel) {
    delete static_cast<SingleKernel*>(kernel);
  };
  InferOutputShapeFn = InferSingle;
}

}  // namespace onnx_fp8
